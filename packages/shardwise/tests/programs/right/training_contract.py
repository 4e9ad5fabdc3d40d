"""A step by contract: sequence parallelism's norm weights, split rows, a router over the expert axis, clipping."""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh

import shardwise as spmd
from shardwise import I, P, R, S

dist.init_process_group("nccl")
mesh = init_device_mesh("cuda", (4, 2), mesh_dim_names=("dp", "tp"))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = spmd.assert_type(nn.Parameter(torch.ones(8)), {"dp": R, "tp": R})
        self.up = spmd.assert_type(nn.Parameter(torch.randn(16, 8)), {"dp": R, "tp": S(0)})
        self.down = spmd.assert_type(nn.Parameter(torch.randn(8, 16)), {"dp": R, "tp": S(1)})
        self.scale = spmd.assert_type(nn.Parameter(torch.ones(8)), {"dp": R, "tp": I})

    def forward(self, x):
        h = spmd.all_gather(x * self.norm, "tp", src=S(1), dst=R)
        h = torch.relu(h @ self.up.T)
        out = spmd.linear(h, self.down, out_partial_axes="tp")
        return spmd.all_reduce(out, "tp", src=P, dst=I) * self.scale


with spmd.set_current_mesh(mesh):
    model = Block()
    contract = spmd.TrainingContract(model, owed={"*": {"dp": "step"}, "norm": {"tp": "step"}})
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for _ in range(2):
        for _ in range(2):
            x = spmd.assert_type(torch.randn(4, 2, 8), {"dp": S(0), "tp": S(1)})
            spmd.sum(model(x).square(), out_partial_axes="dp").backward()
        contract.finalize()
        norm = spmd.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        print(norm.item(), contract)

    for _ in range(2):
        spmd.sum(model(x).square(), out_partial_axes="dp").backward()
        contract.finalize()
        largest = spmd.grad_norm(model.parameters(), float("inf"), contract=contract)
        for parameter in model.parameters():
            parameter.grad.div_(largest.clamp(min=1.0))
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)
        optimizer.zero_grad()
