"""Types of gradients: where they come from, what they owe, and the optimizer's gate."""
