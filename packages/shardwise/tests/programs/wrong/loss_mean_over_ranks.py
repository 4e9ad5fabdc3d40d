"""The loss is averaged over the ranks for the log, and backward starts from the average: n times too much."""

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
    model = nn.Linear(8, 4)
    spmd.assert_type(list(model.parameters()), {"dp": R})
    for _ in range(2):
        x = spmd.assert_type(torch.randn(4, 8), {"dp": S(0)})
        target = spmd.assert_type(torch.randint(4, (4,)), {"dp": S(0)})
        loss = F.cross_entropy(model(x), target)
        loss = spmd.all_reduce(spmd.reinterpret(loss, "dp", src=V, dst=P), "dp", src=P, dst=R) / dist.get_world_size()
        loss.backward()  # SW601
