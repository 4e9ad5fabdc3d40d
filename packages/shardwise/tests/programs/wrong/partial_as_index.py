"""Pending sums used where only values make sense: as an index, a mask, a divisor, a condition."""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh

import shardwise as spmd
from shardwise import P, R, S, V

dist.init_process_group("nccl")
mesh = init_device_mesh("cuda", (8,), mesh_dim_names=("tp",))

with spmd.set_current_mesh(mesh):
    table = spmd.assert_type(torch.randn(8, 4), {"tp": R})
    x = spmd.assert_type(torch.randn(2, 4), {"tp": S(1)})
    count = spmd.reinterpret(x.sum(), "tp", src=V, dst=P)
    ids = spmd.reinterpret((x > 0).sum(1), "tp", src=V, dst=P)
    y = table / count  # SW114
    y = table[ids]  # SW114
    y = F.embedding(ids, table)  # SW112
    y = torch.where(ids > 2, 1.0, 0.0)  # SW112
    y = table.index_select(0, ids)  # SW114
    y = table.masked_fill(ids.sum().bool(), 0.0)  # SW112
    y = table * (1 / count)  # SW112
