"""What a program says of its tensors and numbers, and whether it agrees with what is known."""
