"""A replicated weight is scaled by this process's rank."""

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

import shardwise as spmd
from shardwise import R

dist.init_process_group("nccl")
mesh = init_device_mesh("cuda", (8,), mesh_dim_names=("tp",))

with spmd.set_current_mesh(mesh):
    weight = spmd.assert_type(torch.randn(8, 8), {"tp": R})
    weight = weight * (1 + dist.get_rank())
    spmd.assert_type(weight, {"tp": R})  # SW130
