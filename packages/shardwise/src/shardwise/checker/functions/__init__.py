"""Autograd functions, torch's own ones, module hooks, and the border with DTensor.

a call of a function       autograd_functions, function_backward, captured_tensors, builtin_functions
what its author declares   declared_forward, compared_derivative
what running it tells      examination, probed_functions, calls_by_counts, open_readings, followed_calls
what its code names        named_calls
hooks of modules           backward_hooks
into DTensor and out       dtensor_bridge
"""
