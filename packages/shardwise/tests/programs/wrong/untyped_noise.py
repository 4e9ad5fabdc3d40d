"""torch.randn has no type: whether its numbers are equal along tp, only the program can say."""

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

import shardwise as spmd
from shardwise import R, S

dist.init_process_group("nccl")
mesh = init_device_mesh("cuda", (2, 4), mesh_dim_names=("dp", "tp"))

with spmd.set_current_mesh(mesh):
    images = spmd.assert_type(torch.randn(2, 3, 8, 8), {"dp": S(0), "tp": R})
    noisy = images + 0.1 * torch.randn(2, 3, 8, 8)  # SW102
    print(noisy.mean())
