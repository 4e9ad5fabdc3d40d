"""Losses of tokens weighted by how many each sample has, over data ranks."""
# options: world_size=4

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

import shardwise as spmd
from shardwise import P, R, S, V

dist.init_process_group("gloo")
N, RANK = dist.get_world_size(), dist.get_rank()
mesh = init_device_mesh("cpu", (N,), mesh_dim_names=("dp",))
dice = torch.Generator().manual_seed(0)


def piece(x, dim=0):
    return spmd.assert_type(x.chunk(N, dim)[RANK].clone(), {"dp": S(dim)})


def whole(x):
    return spmd.assert_type(x.clone(), {"dp": R})


with spmd.set_current_mesh(mesh):
    x, lengths = piece(torch.randn(8, 6, 5, generator=dice)), piece(torch.arange(8) % 5 + 1)
    weight = torch.nn.Parameter(whole(torch.randn(5, generator=dice)))
    spmd.assert_type(weight, {"dp": R})
    optimizer = torch.optim.SGD([weight], lr=0.1)
    mask = (torch.arange(6) < lengths[:, None]).float()
    count = spmd.all_reduce(mask.sum(), "dp", src=P, dst=R)
    loss = ((x @ weight).square() * mask).sum() / count
    spmd.reinterpret(loss, "dp", src=V, dst=P).backward()
    dist.all_reduce(weight.grad)
    optimizer.step()
    result = weight.detach()
    spmd.assert_type(result, {"dp": R})
