"""backward from each rank's own loss: nobody said whether the gradients are to be summed."""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh

import shardwise as spmd
from shardwise import R, S

dist.init_process_group("nccl")
mesh = init_device_mesh("cuda", (8,), mesh_dim_names=("dp",))

with spmd.set_current_mesh(mesh):
    model = nn.Linear(8, 4)
    spmd.assert_type(list(model.parameters()), {"dp": R})
    x = spmd.assert_type(torch.randn(4, 8), {"dp": S(0)})
    loss = model(x).pow(2).mean()
    loss.backward()  # SW602
    gradients = torch.autograd.grad(model(x).sum(), list(model.parameters()))  # SW602
    torch.autograd.backward([model(x).sum()])  # SW602
