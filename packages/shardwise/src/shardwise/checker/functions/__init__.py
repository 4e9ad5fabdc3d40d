"""Autograd functions, torch's own ones, module hooks, and the border with DTensor."""
