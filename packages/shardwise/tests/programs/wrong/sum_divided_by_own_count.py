"""The sum of losses is a pending sum, and so is the count: dividing one by the other before reducing is no mean."""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import init_device_mesh

import shardwise as spmd
from shardwise import P, R, S, V

dist.init_process_group("nccl")
mesh = init_device_mesh("cuda", (8,), mesh_dim_names=("dp",))

with spmd.set_current_mesh(mesh):
    head = nn.Linear(8, 16)
    spmd.assert_type(list(head.parameters()), {"dp": R})
    x = spmd.assert_type(torch.randn(2, 6, 8), {"dp": S(0)})
    targets = spmd.assert_type(torch.randint(-1, 16, (2, 6)), {"dp": S(0)})
    total = F.cross_entropy(head(x).flatten(0, 1), targets.flatten(), ignore_index=-1, reduction="sum")
    count = (targets != -1).sum()
    total = spmd.reinterpret(total, "dp", src=V, dst=P)
    loss = total / spmd.reinterpret(count, "dp", src=V, dst=P)  # SW114
    loss = total / count  # SW110
    loss.backward()
