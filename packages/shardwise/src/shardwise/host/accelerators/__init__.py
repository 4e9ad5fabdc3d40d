"""Accelerators that are not there: a script for GPUs runs on the device that it is given.

its calls                  devices, redirected_calls, gpu_kernels, synced_batch_norm
``torch.cuda`` for nothing cuda_stand_ins, device_properties, accelerator_seeds
"""
