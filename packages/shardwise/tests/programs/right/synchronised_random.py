"""Random numbers that are meant to be equal: seeded alike along tp and declared so; different along dp."""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import init_device_mesh

import shardwise as spmd
from shardwise import I, R, S, V

dist.init_process_group("nccl")
mesh = init_device_mesh("cuda", (2, 4), mesh_dim_names=("dp", "tp"))
torch.manual_seed(1234)  # one model for all

with spmd.set_current_mesh(mesh):
    weight = nn.Parameter(torch.empty(16, 16))
    with torch.no_grad():
        weight.normal_(std=0.02)
    spmd.assert_type(weight, {"dp": R, "tp": I})
    torch.manual_seed(1234 + mesh.get_local_rank("dp"))
    x = spmd.assert_type(torch.randn(4, 16), {"dp": S(0), "tp": I})
    with spmd.synchronised_rng("tp"):
        h = F.dropout(F.linear(x, weight), 0.1)
        h = h + torch.randn_like(h)
        mask = torch.bernoulli(torch.full_like(h, 0.9))
    h = h * mask
    spmd.assert_type(h, {"dp": V, "tp": I})
    h = F.dropout(h, 0.1, training=False)
