# unseen: ReduceOp.AVG of what is already divided is arithmetic; a type does not count how often a mean was taken
"""Gradients of a loss that was divided by the world size are averaged again."""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh

import shardwise as spmd
from shardwise import P, R, S, V

dist.init_process_group("nccl")
mesh = init_device_mesh("cuda", (8,), mesh_dim_names=("dp",))

with spmd.set_current_mesh(mesh):
    model = nn.Linear(8, 4)
    spmd.assert_type(list(model.parameters()), {"dp": R})
    x = spmd.assert_type(torch.randn(4, 8), {"dp": S(0)})
    loss = model(x).square().mean() / dist.get_world_size()
    spmd.reinterpret(loss, "dp", src=V, dst=P).backward()
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad, op=dist.ReduceOp.AVG)
    torch.optim.SGD(model.parameters(), lr=0.1).step()
