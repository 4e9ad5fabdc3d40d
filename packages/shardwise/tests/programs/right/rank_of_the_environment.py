# options: world_size=4
"""Each rank takes its part by the number that torchrun has put into its environment, through int, float and range."""

import os

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

import shardwise as spmd
from shardwise import R, V

rank, world = int(os.environ["RANK"]), int(os.getenv("WORLD_SIZE", "1"))
local_rank = int(os.environ.get("LOCAL_RANK", 0))
dist.init_process_group("gloo")
mesh = init_device_mesh("cpu", (4,), mesh_dim_names=("dp",))
device = torch.device(f"cpu:{0 * local_rank}")

with spmd.set_current_mesh(mesh):
    data = spmd.assert_type(torch.randn(8, 6, device=device), {"dp": R})
    n = int(data.shape[0] / world)
    own = spmd.assert_type(data[rank * n : (rank + 1) * n], {"dp": V})
    spmd.assert_type(data.chunk(world)[local_rank], {"dp": V})
    rows = torch.stack([data[at] for at in range(rank, len(data), world)])
    weights = [float(own[at].norm()) for at in range(n)]
    assert [10, 20, 30, 40][rank] == 10 + 10 * rank
    assert f"{rank}" == os.environ["RANK"]

    for total in (own.sum(0), rows.sum(0), torch.tensor(weights).sum(), torch.tensor(float(rank + 1))):
        dist.all_reduce(total)
        spmd.assert_type(total / world, {"dp": R})
    mean = own.sum(0)
    dist.all_reduce(mean)
    spmd.assert_type(mean / int(os.environ["WORLD_SIZE"]) * dist.get_world_size(), {"dp": R})
