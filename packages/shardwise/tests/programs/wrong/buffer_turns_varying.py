"""A running mean that must be equal on all ranks is updated with each rank's own batch mean."""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh

import shardwise as spmd
from shardwise import R, S

dist.init_process_group("nccl")
mesh = init_device_mesh("cuda", (8,), mesh_dim_names=("dp",))


class RunningNorm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.register_buffer("mean", torch.zeros(width))
        spmd.assert_type(self.mean, {"dp": R})

    def forward(self, x):
        with torch.no_grad():
            self.mean.lerp_(x.mean(0), 0.1)
            spmd.assert_type(self.mean, {"dp": R})  # SW130
        return x - self.mean


with spmd.set_current_mesh(mesh):
    norm = RunningNorm(8)
    norm(spmd.assert_type(torch.randn(4, 8), {"dp": S(0)}))
