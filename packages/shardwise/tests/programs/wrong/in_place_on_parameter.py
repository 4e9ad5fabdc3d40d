"""A replicated parameter is updated in place with gradients that are still one rank's share, by hand."""

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
    loss = spmd.reinterpret(model(x).pow(2).mean(), "dp", src=V, dst=P)
    gradients = torch.autograd.grad(loss, list(model.parameters()))
    with torch.no_grad():
        for parameter, gradient in zip(model.parameters(), gradients):
            parameter.sub_(0.1 * gradient)  # SW113
