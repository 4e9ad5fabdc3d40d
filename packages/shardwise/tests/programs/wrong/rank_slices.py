# options: world_size=4
"""Parts that are cut by the rank's number, and then taken for what all ranks have."""

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

import shardwise as spmd
from shardwise import I, P, R

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
mesh = init_device_mesh("cpu", (4,), mesh_dim_names=("dp",))

with spmd.set_current_mesh(mesh):
    batch = spmd.assert_type(torch.randn(8, 6), {"dp": R})
    weight = spmd.assert_type(torch.randn(6, 6).requires_grad_(), {"dp": I})

    same = batch[: len(batch) // world].sum()
    dist.all_reduce(same)  # SW201
    spmd.assert_type(batch.chunk(world)[rank], {"dp": R})  # SW130
    (weight * (rank + 1)).sum()  # SW101
    partial = spmd.assert_type(torch.randn(4, 6), {"dp": P})
    partial[rank].sum()  # SW110
