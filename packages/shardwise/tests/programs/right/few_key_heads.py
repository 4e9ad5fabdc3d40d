"""Query heads are shared out, and the only key head is on every rank."""
# options: world_size=2

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

import shardwise as spmd
from shardwise import P, R, S

dist.init_process_group("gloo")
N, RANK = dist.get_world_size(), dist.get_rank()
mesh = init_device_mesh("cpu", (N,), mesh_dim_names=("tp",))
dice = torch.Generator().manual_seed(0)


def piece(x, dim=0):
    return spmd.assert_type(x.chunk(N, dim)[RANK].clone(), {"tp": S(dim)})


def whole(x):
    return spmd.assert_type(x.clone(), {"tp": R})


with spmd.set_current_mesh(mesh):
    x, wide = whole(torch.randn(5, 8, generator=dice)), torch.randn(8, 8, generator=dice)
    query, out = piece(wide, 1), piece(wide.t(), 0)
    key = whole(torch.randn(8, 2, generator=dice))
    heads = (x @ query).view(5, 4 // N, 2).transpose(0, 1)
    scores = heads @ (x @ key).t() * 0.7071
    mixed = scores.softmax(-1) @ (x @ key)
    result = spmd.all_reduce(mixed.transpose(0, 1).reshape(5, 8 // N) @ out, "tp", src=P, dst=R)
    spmd.assert_type(result, {"tp": R})
