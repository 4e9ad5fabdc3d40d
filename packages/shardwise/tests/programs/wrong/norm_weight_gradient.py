"""Sequence parallelism with a norm weight that is invariant: its gradient misses the sum over tp."""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import init_device_mesh

import shardwise as spmd
from shardwise import I, R, S

dist.init_process_group("nccl")
mesh = init_device_mesh("cuda", (2, 4), mesh_dim_names=("dp", "tp"))


class RMSNorm(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(16))
        spmd.assert_type(self.weight, {"dp": R, "tp": I})

    def forward(self, x):
        x = x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6)
        return x * self.weight  # SW101


with spmd.set_current_mesh(mesh):
    norm = RMSNorm()
    x = spmd.assert_type(torch.randn(2, 8, 16), {"dp": S(0), "tp": S(1)})
    h = norm(x)
    h = F.layer_norm(x, (16,), norm.weight)  # SW101
