"""Weights in parts are rounded to one scale, and gradients go straight through."""
# options: world_size=4

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

import shardwise as spmd
from shardwise import I, P, R, S

dist.init_process_group("gloo")
N, RANK = dist.get_world_size(), dist.get_rank()
mesh = init_device_mesh("cpu", (N,), mesh_dim_names=("tp",))
dice = torch.Generator().manual_seed(0)


def piece(x, dim=0):
    return spmd.assert_type(x.chunk(N, dim)[RANK].clone(), {"tp": S(dim)})


def whole(x):
    return spmd.assert_type(x.clone(), {"tp": R})


with spmd.set_current_mesh(mesh):
    weight = torch.nn.Parameter(torch.randn(8, 3, generator=dice).chunk(N)[RANK].clone())
    spmd.assert_type(weight, {"tp": S(0)})
    largest = weight.detach().abs().amax()
    dist.all_reduce(largest, op=dist.ReduceOp.MAX)
    step = largest / 7.0
    rounded = weight + ((weight / step).round() * step - weight).detach()
    x = whole(torch.randn(5, 3, generator=dice))
    spmd.all_reduce((x @ rounded.t()).square().sum(), "tp", src=P, dst=I).backward()
    torch.optim.SGD([weight], lr=0.1).step()
    result = spmd.all_gather(weight.detach(), "tp", src=S(0), dst=R)
    spmd.assert_type(result, {"tp": R})
