"""fully_shard sums over dp; a norm weight that meets pieces of the sequence owes a sum over tp as well."""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

import shardwise as spmd
from shardwise import I, P, R, S, V

dist.init_process_group("nccl")
mesh = init_device_mesh("cuda", (2, 4), mesh_dim_names=("dp", "tp"))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = spmd.assert_type(nn.Parameter(torch.ones(8)), {"tp": R})
        self.up = spmd.assert_type(nn.Parameter(torch.randn(4, 8)), {"tp": S(0)})

    def forward(self, x):
        return spmd.all_gather(x * self.norm, "tp", src=S(0), dst=R) @ self.up.t()


with spmd.set_current_mesh(mesh):
    model = fully_shard(Block(), mesh=mesh["dp"])
    optimizer = torch.optim.AdamW(model.parameters())
    for summed in (False, True):
        x = spmd.assert_type(torch.randn(6, 8), {"dp": V, "tp": S(0)})
        loss = spmd.all_reduce(model(x).square().sum(), "tp", src=V, dst=I)
        spmd.reinterpret(loss, "dp", src=V, dst=P).backward()
        if summed:
            dist.all_reduce(model.norm.grad.to_local(), group=mesh.get_group("tp"))
        nn.utils.clip_grad_value_(model.parameters(), 1.0)
        optimizer.step()  # SW608
        optimizer.zero_grad()
