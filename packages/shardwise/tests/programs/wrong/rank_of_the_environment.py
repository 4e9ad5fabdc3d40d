# options: world_size=4
"""Numbers that differ between ranks come through int, float and range, and what is made of them counts as equal."""

import os

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

import shardwise as spmd
from shardwise import R, V

rank, local_rank = int(os.environ["RANK"]), int(os.environ.get("LOCAL_RANK", "0"))
dist.init_process_group("gloo")
mesh = init_device_mesh("cpu", (4,), mesh_dim_names=("dp",))

with spmd.set_current_mesh(mesh):
    data = spmd.assert_type(torch.randn(8, 6), {"dp": R})
    rows = spmd.assert_type(torch.randn(8, 6), {"dp": R})
    own = spmd.assert_type(torch.randn(2, 6), {"dp": V})
    spmd.assert_type(data[rank * 2 : rank * 2 + 2], {"dp": R})  # SW130
    spmd.assert_type(data * float(rank), {"dp": R})  # SW130
    spmd.assert_type(data * round(1 / (1 + local_rank), 3), {"dp": R})  # SW130
    spmd.assert_type(data * int(own[0, 0]), {"dp": R})  # SW130
    spmd.assert_type(torch.tensor(float(own.sum())), {"dp": R})  # SW130
    spmd.assert_type(torch.stack([rows[at] for at in range(rank, 8, 4)]), {"dp": R})  # SW130
    spmd.assert_type(torch.stack([rows[at] + 1 for at in list(range(rank, 8))[:2]]), {"dp": R})  # SW130
