"""Dropout on shards draws from a generator of its own on each rank; on what is equal from one that is alike."""
# options: world_size=4

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
    x = piece(torch.randn(8, 4, generator=dice))
    own, alike = torch.Generator().manual_seed(100 + RANK), torch.Generator().manual_seed(7)
    noise = spmd.assert_type(torch.rand(x.shape, generator=own), {"tp": S(0)})
    kept = spmd.assert_type(torch.rand(4, generator=alike), {"tp": R}) > 0.5
    total = spmd.all_reduce((x * (noise >= 0.0) * kept).sum(0), "tp", src=P, dst=R)
    result = total * 2.0
    spmd.assert_type(result, {"tp": R})
