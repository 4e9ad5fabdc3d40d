"""An EMA of replicated weights is fed from this rank's piece, and a replicated buffer from a random draw."""

import copy

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh

import shardwise as spmd
from shardwise import R, S

dist.init_process_group("nccl")
mesh = init_device_mesh("cuda", (8,), mesh_dim_names=("tp",))

with spmd.set_current_mesh(mesh):
    model = nn.Linear(8, 8, bias=False)
    piece = nn.Linear(8, 8, bias=False)
    spmd.assert_type(model.weight, {"tp": R})
    spmd.assert_type(piece.weight, {"tp": S(0)})
    ema = copy.deepcopy(model)
    with torch.no_grad():
        ema.weight.lerp_(model.weight, 0.1)
        ema.weight.lerp_(piece.weight, 0.1)  # SW120
        ema.weight.copy_(piece.weight)  # SW120
        ema.weight.add_(torch.randn_like(ema.weight))  # SW121
        ema.weight.mul_(0.9).add_(piece.weight, alpha=0.1)  # SW120
        nn.init.normal_(ema.weight, std=0.02)  # SW121
