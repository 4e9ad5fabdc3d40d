"""The output of a row-parallel linear goes on unreduced: every rank normalises its own addend."""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh

import shardwise as spmd
from shardwise import R, S

dist.init_process_group("nccl")
mesh = init_device_mesh("cuda", (8,), mesh_dim_names=("tp",))

with spmd.set_current_mesh(mesh):
    down = spmd.assert_type(torch.randn(16, 4, requires_grad=True), {"tp": S(1)})
    scale = spmd.assert_type(torch.ones(16, requires_grad=True), {"tp": R})
    h = spmd.assert_type(torch.randn(2, 4), {"tp": S(1)})
    x = spmd.linear(h, down, out_partial_axes="tp")
    x = F.rms_norm(x, (16,), scale)  # SW112
    x = x * 2
    print(x.shape)
