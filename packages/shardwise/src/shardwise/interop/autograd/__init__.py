"""Gradients and autograd functions, as a check and a training job both know them."""
