"""Terms that every rank adds to a pending sum: a residual, a constant, a bias, a number, a border of ones."""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh

import shardwise as spmd
from shardwise import R, S

dist.init_process_group("nccl")
mesh = init_device_mesh("cuda", (8,), mesh_dim_names=("tp",))

with spmd.set_current_mesh(mesh):
    residual = spmd.assert_type(torch.randn(2, 16), {"tp": R})
    weight = spmd.assert_type(torch.randn(16, 4), {"tp": S(1)})
    x = spmd.assert_type(torch.randn(2, 4), {"tp": S(1)})
    y = spmd.linear(x, weight, out_partial_axes="tp")
    a = residual + y  # SW113
    a = y + 1e-6  # SW113
    a = y + torch.ones(16)  # SW113
    a = torch.cat([y, residual], 0)  # SW113
    a = F.pad(y, (1, 1), value=1.0)  # SW113
    a = F.linear(y, torch.eye(16), torch.ones(16))  # SW113
    a = torch.addmm(residual, y, torch.eye(16))  # SW113
    a = y.clone().fill_diagonal_(1.0)  # SW113
    a = y.clone()
    a += residual  # SW113
    a = torch.lerp(y, residual, 0.5)  # SW113
    a = y + torch.zeros(16)
    a = y + 0
    a = F.pad(y, (1, 1))
