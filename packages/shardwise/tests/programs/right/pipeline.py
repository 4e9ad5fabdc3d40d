"""Two pipeline stages with send and recv of activations and gradients; tensor types speak of the data axis only."""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh

import shardwise as spmd
from shardwise import P, R, S, V

dist.init_process_group("nccl")
mesh = init_device_mesh("cuda", (2, 4), mesh_dim_names=("pp", "dp"))
stage = mesh.get_local_rank("pp")
neighbour = (dist.get_rank() + 4) % 8

with spmd.set_current_mesh(mesh["dp"]):
    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU())
    spmd.assert_type(list(model.parameters()), {"dp": R})
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(2):
        if stage == 0:
            x = spmd.assert_type(torch.randn(4, 8), {"dp": S(0)})
            y = model(x)
            dist.send(y.detach(), neighbour)
            gradient = torch.empty_like(y)
            dist.recv(gradient, neighbour)
            y.backward(gradient)
        else:
            x = torch.empty(4, 8)
            dist.recv(x, neighbour)
            x = spmd.assert_type(x, {"dp": V}).requires_grad_()
            loss = spmd.reinterpret(model(x).square().mean(), "dp", src=V, dst=P)
            loss.backward()
            dist.send(x.grad, neighbour)
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad, group=mesh.get_group("dp"))
        optimizer.step()
        optimizer.zero_grad()
