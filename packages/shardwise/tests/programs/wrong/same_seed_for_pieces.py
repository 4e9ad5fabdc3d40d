# unseen: the type of a parameter is declared, and the checker trusts the declaration
"""Every tp rank seeds alike, so the pieces of a split weight are copies of each other."""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh

import shardwise as spmd
from shardwise import I, R, S, V

dist.init_process_group("nccl")
mesh = init_device_mesh("cuda", (8,), mesh_dim_names=("tp",))
torch.manual_seed(0)

with spmd.set_current_mesh(mesh):
    up, down = nn.Linear(16, 4), nn.Linear(4, 16, bias=False)
    spmd.assert_type(list(up.parameters()), {"tp": S(0)})
    spmd.assert_type(down.weight, {"tp": S(1)})
    x = spmd.assert_type(torch.randn(2, 16), {"tp": R})
    y = spmd.all_reduce(down(up(x).relu()), "tp", src=V, dst=I)
