"""The data-parallel sum of the gradients was forgotten: the replicas drift apart."""

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
    x = spmd.assert_type(torch.randn(4, 8), {"dp": S(0)})
    loss = spmd.reinterpret(model(x).square().mean(), "dp", src=V, dst=P)
    loss.backward()
    optimizer.step()  # SW608
