"""A hook sums the gradient of an activation over tp, which the backward of convert does as well; hooks that may."""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh

import shardwise as spmd
from shardwise import I, R, S, V

dist.init_process_group("nccl")
mesh = init_device_mesh("cuda", (8,), mesh_dim_names=("tp",))


def reduce(gradient):
    gradient = gradient.clone()
    dist.all_reduce(gradient)  # SW606
    return gradient


with spmd.set_current_mesh(mesh):
    x = spmd.assert_type(torch.randn(4, requires_grad=True), {"tp": I})
    norm = spmd.assert_type(nn.Parameter(torch.randn(4)), {"tp": R})
    rows = spmd.assert_type(nn.Parameter(torch.randn(8, 4)), {"tp": S(0)})
    norm.register_hook(reduce)
    optimizer = torch.optim.SGD([norm, rows], lr=0.1)
    h = spmd.convert(x, "tp", src=I, dst=R)
    h.register_hook(lambda gradient: gradient.clamp(-1, 1))  # SW112
    loss = spmd.all_reduce((rows * (h * norm)).sum(), "tp", src=V, dst=I)
    loss.backward()
    optimizer.step()

    x.grad = None
    h = spmd.convert(x, "tp", src=I, dst=R)
    h.register_hook(reduce)
    spmd.all_reduce((rows.detach() * h).sum(), "tp", src=V, dst=I).backward()
