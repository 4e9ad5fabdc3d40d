"""Clipping by a norm over replicate and sharded parameters."""
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
    x = spmd.assert_type(torch.randn(6, 4, generator=dice), {"tp": I})
    full, tail = torch.randn(4, 8, generator=dice), torch.randn(4, generator=dice)
    weight = torch.nn.Parameter(full.chunk(N, 1)[RANK].clone())
    bias = torch.nn.Parameter(tail)
    spmd.assert_type(weight, {"tp": S(1)})
    spmd.assert_type(bias, {"tp": I})
    inner = torch.tanh(spmd.convert(x * bias, "tp", src=I, dst=R) @ weight).square().sum()
    spmd.all_reduce(inner, "tp", src=P, dst=I).backward()
    squares = spmd.all_reduce(weight.grad.square().sum(), "tp", src=P, dst=R)
    norm = (squares + spmd.convert(bias.grad.square().sum(), "tp", src=I, dst=R)).sqrt()
    factor = (1.0 / (norm + 1e-6)).clamp(max=1.0)
    with torch.no_grad():
        weight.grad.mul_(factor)
        bias.grad.mul_(spmd.convert(factor, "tp", src=R, dst=I, expert_mode=True))
    torch.optim.SGD([weight, bias], lr=0.1).step()
    result = bias.detach()
    spmd.assert_type(result, {"tp": I})
