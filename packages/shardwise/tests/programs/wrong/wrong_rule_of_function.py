"""Megatron's region functions swapped: the reduction is used where the copy belongs, and the other way round."""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh

import shardwise as spmd
from shardwise import I, P, R, S, rules

dist.init_process_group("nccl")
mesh = init_device_mesh("cuda", (8,), mesh_dim_names=("tp",))
TP = mesh.get_group("tp")


class Copy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, gradient):
        dist.all_reduce(gradient, group=TP)
        return gradient

    @staticmethod
    def spmd_typecheck(*, x):
        return rules.convert(x, TP, src=I, dst=R)


class Reduce(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        dist.all_reduce(x, group=TP)
        return x

    @staticmethod
    def backward(ctx, gradient):
        return gradient

    @staticmethod
    def spmd_typecheck(*, x):
        return rules.all_reduce(x, TP, src=P, dst=I)


with spmd.set_current_mesh(mesh):
    up = spmd.assert_type(torch.randn(4, 16, requires_grad=True), {"tp": S(0)})
    down = spmd.assert_type(torch.randn(16, 4, requires_grad=True), {"tp": S(1)})
    x = spmd.assert_type(torch.randn(2, 16, requires_grad=True), {"tp": I})
    h = F.gelu(F.linear(Reduce.apply(x.clone()), up))  # SW305
    y = spmd.linear(F.gelu(F.linear(Copy.apply(x), up)), down, out_partial_axes="tp")
    y = Copy.apply(y)  # SW305
