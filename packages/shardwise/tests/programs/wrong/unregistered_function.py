"""An autograd function whose author said nothing about types, in the middle of a typed model."""

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

import shardwise as spmd
from shardwise import S

dist.init_process_group("nccl")
mesh = init_device_mesh("cuda", (8,), mesh_dim_names=("tp",))


class GatherAlongSequence(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        pieces = [torch.empty_like(x) for _ in range(dist.get_world_size())]
        dist.all_gather(pieces, x)
        return torch.cat(pieces, 1)

    @staticmethod
    def backward(ctx, gradient):
        return gradient.chunk(dist.get_world_size(), 1)[dist.get_rank()]


@spmd.register_local_autograd_function
class FastGelu(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return torch.nn.functional.gelu(x)

    @staticmethod
    def backward(ctx, gradient):
        return gradient


with spmd.set_current_mesh(mesh):
    x = spmd.assert_type(torch.randn(2, 4, 16, requires_grad=True), {"tp": S(1)})
    weight = spmd.assert_type(torch.randn(16, 16), {"tp": S(1)})
    y = GatherAlongSequence.apply(x)  # SW302
    y = y * 2
    z = FastGelu.apply(x)
    z = FastGelu.apply(spmd.linear(x, weight, out_partial_axes="tp"))  # SW112
