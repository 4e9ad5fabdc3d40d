"""Dropout on an activation that must be equal on all tp ranks, with a generator that differs between them."""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import init_device_mesh

import shardwise as spmd
from shardwise import I, R, S, V

dist.init_process_group("nccl")
mesh = init_device_mesh("cuda", (8,), mesh_dim_names=("tp",))
torch.manual_seed(1234 + dist.get_rank())

with spmd.set_current_mesh(mesh):
    weight = spmd.assert_type(torch.randn(16, 4), {"tp": S(1)})
    x = spmd.assert_type(torch.randn(2, 4), {"tp": S(1)})
    y = spmd.all_reduce(F.linear(x, weight), "tp", src=V, dst=I)
    y = F.dropout(y, 0.1)  # SW121
    z = spmd.all_reduce(F.linear(x, weight), "tp", src=V, dst=R)
    z = nn.Dropout(0.1)(z)  # SW121
    z = nn.Dropout(0.1).eval()(y)
