"""A sinusoidal table, filled slice by slice into zeros, is added to an embedding that is still a pending sum."""

import math

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh

import shardwise as spmd
from shardwise import I, P, R, S, Scalar, V

dist.init_process_group("nccl")
mesh = init_device_mesh("cuda", (8,), mesh_dim_names=("tp",))


def position_table(length, width):
    table = torch.zeros(length, width)
    position = torch.arange(length).unsqueeze(1)
    rate = torch.exp(torch.arange(0, width, 2) * (-math.log(10000.0) / width))
    table[:, 0::2] = torch.sin(position * rate)
    table[:, 1::2] = torch.cos(position * rate)
    return table


with spmd.set_current_mesh(mesh):
    rows = spmd.assert_type(torch.randn(8, 16, requires_grad=True), {"tp": S(0)})
    ids = spmd.assert_type(torch.randint(64, (2, 6)), {"tp": R})
    local = ids - Scalar(8 * mesh.get_local_rank("tp"), {"tp": V})
    outside = (local < 0) | (local >= 8)
    x = F.embedding(local.masked_fill(outside, 0), rows).masked_fill(outside[..., None], 0.0)
    x = spmd.reinterpret(x, "tp", src=V, dst=P)
    y = x + position_table(6, 16)  # SW113
    y = spmd.all_reduce(x, "tp", src=P, dst=I) + position_table(6, 16)
