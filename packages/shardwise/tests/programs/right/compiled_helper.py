"""Compiled helpers and scripted functions inside a checked model."""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh

import shardwise as spmd
from shardwise import R, S

dist.init_process_group("nccl")
mesh = init_device_mesh("cuda", (8,), mesh_dim_names=("tp",))


@torch.compile(backend="eager", dynamic=False)
def swiglu(gate, up):
    return F.silu(gate) * up


with spmd.set_current_mesh(mesh):
    x = spmd.assert_type(torch.randn(2, 16), {"tp": R})
    gate = spmd.assert_type(torch.randn(4, 16), {"tp": S(0)})
    up = spmd.assert_type(torch.randn(4, 16), {"tp": S(0)})
    h = swiglu(x @ gate.T, x @ up.T)
    print((h * 2).shape)
