# options: world_size=4
"""Each rank takes its part of what all have by its number, in the ways in which people write that."""

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

import shardwise as spmd
from shardwise import R, S

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
dp_rank, tp_rank = rank // 2, rank % 2

with spmd.set_current_mesh(mesh):
    batch = spmd.assert_type(torch.randn(8, 6), {"dp": R, "tp": R})
    weight = spmd.assert_type(torch.randn(12, 6), {"dp": R, "tp": R})

    rows = batch.shape[0] // 2
    mine = batch[dp_rank * rows : (dp_rank + 1) * rows]
    spmd.assert_type(mine, {"dp": S(0), "tp": R})
    columns = weight.chunk(2)[mesh.get_local_rank("tp")]
    spmd.assert_type(columns, {"dp": R, "tp": S(0)})
    logits = mine @ columns.t()

    # A vocabulary-parallel lookup: every rank has the rows from start on.
    ids = spmd.assert_type(torch.randint(0, 12, (5,)), {"dp": R, "tp": R})
    start = tp_rank * columns.shape[0]
    outside = (ids < start) | (ids >= start + columns.shape[0])
    found = columns[(ids - start).masked_fill(outside, 0)].masked_fill(outside[:, None], 0.0)
    dist.all_reduce(found, group=mesh.get_group("tp"))
    spmd.assert_type(found, {"dp": R, "tp": R})

    total = logits.square().sum()
    dist.all_reduce(total)
    spmd.assert_type(total, {"dp": R, "tp": R})

    positions = torch.arange(tp_rank * 3, (tp_rank + 1) * 3)
    every_other = batch[rank::world].sum(0)
    dist.all_reduce(every_other)
    spmd.assert_type(every_other * positions.numel(), {"dp": R, "tp": R})
    if rank == 0:
        print(total.item())
