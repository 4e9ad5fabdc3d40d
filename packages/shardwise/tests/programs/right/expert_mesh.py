"""Experts live on another arrangement of the same ranks: (dp, tp) outside, (edp, ep) inside, with reinterpret_mesh."""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import init_device_mesh

import shardwise as spmd
from shardwise import P, R, S, V

dist.init_process_group("nccl")
dense = init_device_mesh("cuda", (2, 4), mesh_dim_names=("dp", "tp"))
sparse = init_device_mesh("cuda", (4, 2), mesh_dim_names=("edp", "ep"))


class Experts(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(2, 16, 16))
        spmd.assert_type(self.weight, {"edp": R, "ep": S(0)})

    def forward(self, x):
        x = spmd.reinterpret_mesh(x, {"edp": V, "ep": V})
        x = spmd.all_to_all(x.unflatten(0, (2, -1)), "ep", src=V, dst=V)
        y = F.relu(torch.einsum("etd,edf->etf", x, self.weight))
        y = spmd.all_to_all(y, "ep", src=V, dst=V)
        return y.flatten(0, 1)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = spmd.assert_type(nn.Parameter(torch.ones(16)), {"dp": R, "tp": R})
        with spmd.set_current_mesh(sparse):
            self.experts = Experts()

    def forward(self, x):
        h = F.rms_norm(x, (16,), self.norm)
        with spmd.set_current_mesh(sparse):
            h = self.experts(h)
        return x + spmd.reinterpret_mesh(h, dense)


with spmd.set_current_mesh(dense):
    block = Block()
    x = spmd.assert_type(torch.randn(8, 16), {"dp": V, "tp": V})
    loss = block(x).square().mean() / 8
    loss = spmd.reinterpret(spmd.reinterpret(loss, "dp", src=V, dst=P), "tp", src=V, dst=P)
    optimizer = torch.optim.AdamW(block.parameters())
    loss.backward()
    for axis in ("dp", "tp"):
        dist.all_reduce(block.norm.grad, group=dense.get_group(axis))
    dist.all_reduce(block.experts.weight.grad, group=sparse.get_group("edp"))
    squares = block.experts.weight.grad.square().sum()
    dist.all_reduce(squares, group=sparse.get_group("ep"))
    norm = (squares + block.norm.grad.square().sum()).sqrt()
    for parameter in block.parameters():
        parameter.grad.mul_((1.0 / norm).clamp(max=1.0))
    optimizer.step()
