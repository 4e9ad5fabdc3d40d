"""Micro-batches whose gradients are summed inside the loop: what the first ones gave is summed once per micro-batch."""

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
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(2):
        x = spmd.assert_type(torch.randn(4, 8), {"dp": S(0)})
        loss = spmd.reinterpret(model(x).square().mean() / 2, "dp", src=V, dst=P)
        loss.backward()  # SW604
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
    optimizer.step()
