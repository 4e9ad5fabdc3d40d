"""An invariant activation enters a column-parallel linear without copy-to-TP: its gradient is one rank's share."""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import init_device_mesh

import shardwise as spmd
from shardwise import I, R, S, V

dist.init_process_group("nccl")
mesh = init_device_mesh("cuda", (2, 4), mesh_dim_names=("dp", "tp"))


class MLP(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(16)
        self.up, self.down = nn.Linear(16, 8), nn.Linear(8, 16, bias=False)
        spmd.assert_type(list(self.norm.parameters()), {"dp": R, "tp": I})
        spmd.assert_type(list(self.up.parameters()), {"dp": R, "tp": S(0)})
        spmd.assert_type(self.down.weight, {"dp": R, "tp": S(1)})

    def forward(self, x):
        h = F.gelu(self.up(self.norm(x)))  # SW101
        return x + spmd.all_reduce(self.down(h), "tp", src=V, dst=I)


with spmd.set_current_mesh(mesh):
    x = spmd.assert_type(torch.randn(4, 16), {"dp": S(0), "tp": I})
    MLP()(x)
