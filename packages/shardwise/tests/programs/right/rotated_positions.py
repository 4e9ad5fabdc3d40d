"""Rotary angles of a sharded sequence start where the rank's part starts."""
# options: world_size=4

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

import shardwise as spmd
from shardwise import R, S

dist.init_process_group("gloo")
N, RANK = dist.get_world_size(), dist.get_rank()
mesh = init_device_mesh("cpu", (N,), mesh_dim_names=("cp",))
dice = torch.Generator().manual_seed(0)


def piece(x, dim=0):
    return spmd.assert_type(x.chunk(N, dim)[RANK].clone(), {"cp": S(dim)})


def whole(x):
    return spmd.assert_type(x.clone(), {"cp": R})


with spmd.set_current_mesh(mesh):
    x = piece(torch.randn(8, 6, generator=dice))
    positions = piece(torch.arange(8.0))
    angles = positions[:, None] * whole(torch.tensor([1.0, 0.1, 0.01]))
    cos, sin = angles.cos(), angles.sin()
    first, second = x.chunk(2, -1)
    turned = torch.cat([first * cos - second * sin, second * cos + first * sin], -1)
    result = spmd.all_gather(turned, "cp", src=S(0), dst=R)
    spmd.assert_type(result, {"cp": R})
