"""Clipping in a tensor-parallel model by a norm of which every rank knows only its own pieces."""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh

import shardwise as spmd
from shardwise import I, R, S, V

dist.init_process_group("nccl")
mesh = init_device_mesh("cuda", (8,), mesh_dim_names=("tp",))

with spmd.set_current_mesh(mesh):
    scale, rows = nn.Parameter(torch.randn(4)), nn.Parameter(torch.randn(8, 4))
    spmd.assert_type(scale, {"tp": I})
    spmd.assert_type(rows, {"tp": S(0)})
    optimizer = torch.optim.SGD([scale, rows], lr=0.1)

    def backward():
        optimizer.zero_grad()
        h = spmd.convert(scale, "tp", src=I, dst=R)
        spmd.all_reduce((rows * h).square().sum(), "tp", src=V, dst=I).backward()

    backward()
    nn.utils.clip_grad_norm_([scale, rows], 1.0)  # SW609
    optimizer.step()

    backward()
    norm = torch.stack([p.grad.norm() for p in (scale, rows)]).norm()
    for p in (scale, rows):
        p.grad.mul_((1.0 / norm).clamp(max=1.0))  # SW609
    optimizer.step()

    backward()
    squares = spmd.all_reduce(rows.grad.square().sum(), "tp", src=V, dst=R) + scale.grad.square().sum()
    for p in (scale, rows):
        p.grad.mul_((1.0 / squares.sqrt()).clamp(max=1.0))
    optimizer.step()
