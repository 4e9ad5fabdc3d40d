"""A flat gradient that is summed piece by piece, in place."""

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

import shardwise as spmd
from shardwise import R, S

dist.init_process_group("nccl")
mesh = init_device_mesh("cuda", (8,), mesh_dim_names=("dp",))
CHUNK = 8

with spmd.set_current_mesh(mesh):
    weight = spmd.assert_type(torch.nn.Parameter(torch.randn(8, 4)), {"dp": R})
    optimizer = torch.optim.SGD([weight], lr=0.1)
    for _ in range(2):
        x = spmd.assert_type(torch.randn(3, 8), {"dp": S(0)})
        loss = spmd.sum((x @ weight).square(), (0, 1), out_partial_axes="dp")
        loss.backward()
        flat = weight.grad.view(-1)
        for start in range(0, flat.numel(), CHUNK):
            dist.all_reduce(flat[start : start + CHUNK])
        optimizer.step()
        optimizer.zero_grad()
