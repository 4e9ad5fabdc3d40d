"""A row-parallel linear hands its bias to F.linear: after the reduction it is there once per tp rank."""

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

import shardwise as spmd
from shardwise import I, P, R, S

dist.init_process_group("nccl")
mesh = init_device_mesh("cuda", (8,), mesh_dim_names=("tp",))

with spmd.set_current_mesh(mesh):
    weight = spmd.assert_type(torch.randn(16, 4, requires_grad=True), {"tp": S(1)})
    bias = spmd.assert_type(torch.zeros(16, requires_grad=True), {"tp": R})
    x = spmd.assert_type(torch.randn(2, 4), {"tp": S(1)})
    y = spmd.linear(x, weight, bias, out_partial_axes="tp")  # SW113
    spmd.all_reduce(y, "tp", src=P, dst=I).sum().backward()
