"""Writes of per-rank data into tensors that must stay equal, through views, slices and out=."""

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

import shardwise as spmd
from shardwise import I, P, R, V

dist.init_process_group("nccl")
mesh = init_device_mesh("cuda", (8,), mesh_dim_names=("tp",))

with spmd.set_current_mesh(mesh):
    base = spmd.assert_type(torch.randn(4, 8), {"tp": R})
    local = spmd.assert_type(torch.randn(8), {"tp": V})
    base[0] = local
    spmd.assert_type(base, {"tp": R})  # SW130
    again = spmd.assert_type(torch.randn(4, 8), {"tp": R})
    row = again.view(-1)[:8]
    row.copy_(local)
    spmd.assert_type(again, {"tp": R})  # SW130
    weight = spmd.assert_type(torch.randn(8, requires_grad=True), {"tp": I})
    y = weight * 2
    y.add_(local)  # SW101
    z = weight.detach().clone()
    torch.mul(local, 2, out=z)
    spmd.assert_type(z, {"tp": I})  # SW130
    total = spmd.reinterpret(local, "tp", src=V, dst=P)
    total[0] = 1.0  # SW113
    total[1] = 0.0
    other = spmd.reinterpret(local, "tp", src=V, dst=P)
    other[1] = 0.0
    other.clamp_(min=0)  # SW112
