"""Sums along a sequence in parts: what is before a part is added to it."""
# options: world_size=4

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

import shardwise as spmd
from shardwise import R, S, V

dist.init_process_group("gloo")
N, RANK = dist.get_world_size(), dist.get_rank()
mesh = init_device_mesh("cpu", (N,), mesh_dim_names=("cp",))
dice = torch.Generator().manual_seed(0)


def piece(x, dim=0):
    return spmd.assert_type(x.chunk(N, dim)[RANK].clone(), {"cp": S(dim)})


def whole(x):
    return spmd.assert_type(x.clone(), {"cp": R})


with spmd.set_current_mesh(mesh):
    x = spmd.assert_type(torch.randn(8, 3, generator=dice).chunk(N)[RANK].clone(), {"cp": V})
    own = x.cumsum(0)
    totals = spmd.all_gather(own[-1], "cp", src=V, dst=R)
    before = (totals * (torch.arange(N) < RANK)[:, None]).sum(0)
    result = spmd.all_gather(own + before, "cp", src=V, dst=R).flatten(0, 1)
    spmd.assert_type(result, {"cp": R})
