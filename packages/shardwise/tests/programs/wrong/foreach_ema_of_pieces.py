"""Replicated EMA weights are updated from this rank's pieces, all in one foreach call."""

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

import shardwise as spmd
from shardwise import R, S

dist.init_process_group("nccl")
mesh = init_device_mesh("cuda", (8,), mesh_dim_names=("tp",))

with spmd.set_current_mesh(mesh), torch.no_grad():
    ema = spmd.assert_type([torch.randn(8, 8), torch.randn(8)], {"tp": R})
    pieces = spmd.assert_type([torch.randn(8, 8), torch.randn(8)], {"tp": S(0)})
    torch._foreach_lerp_(ema, pieces, 0.1)
    spmd.assert_type(ema, {"tp": R})  # SW130
