"""A full backward hook that nobody declared, on a typed module."""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh

import shardwise as spmd
from shardwise import R, S

dist.init_process_group("nccl")
mesh = init_device_mesh("cuda", (8,), mesh_dim_names=("dp",))


def halve(module, gradient_in, gradient_out):
    return tuple(gradient / 2 for gradient in gradient_in)


with spmd.set_current_mesh(mesh):
    layer = nn.Linear(4, 4)
    spmd.assert_type(list(layer.parameters()), {"dp": R})
    layer.register_full_backward_hook(halve)
    x = spmd.assert_type(torch.randn(2, 4, requires_grad=True), {"dp": S(0)})
    y = layer(x)  # SW303
