"""What torch hides from function modes, one module per part of the library.

what plug-ins are          patches, and all of them in installation
wrappers of modules        ddp, fsdp, deepspeed, megatron, module_hooks
derivatives                gradients, autograd_functions, func_grad, grad_scaler, clipping
functions of functions     vmap, control_flow, scripted, compiled
collectives                functional_collectives, coalescing
memory and objects         parameters, storages, swapping, masked, nested, threads
numbers of ranks           the folder numbers
"""
