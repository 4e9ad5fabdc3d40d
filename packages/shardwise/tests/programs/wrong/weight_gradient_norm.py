"""The norm of a split weight's gradient, taken per rank, clips every rank by another factor."""

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

import shardwise as spmd
from shardwise import I, P, S

dist.init_process_group("nccl")
mesh = init_device_mesh("cuda", (8,), mesh_dim_names=("tp",))

with spmd.set_current_mesh(mesh):
    split = spmd.assert_type(torch.randn(16, 4, requires_grad=True), {"tp": S(1)})
    whole = spmd.assert_type(torch.randn(16, requires_grad=True), {"tp": I})
    x = spmd.assert_type(torch.randn(2, 4), {"tp": S(1)})
    y = spmd.all_reduce(spmd.linear(x, split, out_partial_axes="tp"), "tp", src=P, dst=I) + whole
    split_grad, whole_grad = torch.autograd.grad(y.square().sum(), [split, whole])
    squared = split_grad.square().sum() + whole_grad.square().sum()
    clip = (1.0 / squared.sqrt()).clamp(max=1.0)
    with torch.no_grad():
        whole.mul_(clip)  # SW120
        if squared > 100:  # SW116
            print("large")
