# options: world_size=4 permissive
"""A script that is only half annotated, as on the first day: untyped tensors are passed over."""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import init_device_mesh

import shardwise as spmd
from shardwise import I, P, S

dist.init_process_group("nccl")
mesh = init_device_mesh("cuda", (4,), mesh_dim_names=("tp",))


class Scale(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, gradient):
        return gradient * 2


with spmd.set_current_mesh(mesh):
    weight = spmd.assert_type(nn.Parameter(torch.randn(16, 4)), {"tp": S(1)})
    norm = nn.LayerNorm(16)
    x = spmd.assert_type(torch.randn(2, 4), {"tp": S(1)})
    y = spmd.all_reduce(spmd.linear(Scale.apply(x), weight, out_partial_axes="tp"), "tp", src=P, dst=I)
    y = norm(y) + torch.randn(2, 16)
    F.cross_entropy(y, torch.zeros(2, dtype=torch.long)).backward()
