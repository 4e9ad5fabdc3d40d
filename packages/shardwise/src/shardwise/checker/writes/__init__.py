"""What a call writes into: its destination, a gradient, and the norm by which gradients are scaled."""
