"""Collectives and conversions called as something that their operand is not."""

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

import shardwise as spmd
from shardwise import I, P, R, S, V

dist.init_process_group("nccl")
mesh = init_device_mesh("cuda", (8,), mesh_dim_names=("tp",))

with spmd.set_current_mesh(mesh):
    x = spmd.assert_type(torch.randn(8, 8, requires_grad=True), {"tp": I})
    y = spmd.assert_type(torch.randn(8, 8, requires_grad=True), {"tp": S(0)})
    z = spmd.all_gather(x, "tp", src=S(0), dst=R)  # SW201
    z = spmd.convert(y, "tp", src=I, dst=R)  # SW201
    z = spmd.invariant_to_replicate(spmd.convert(x, "tp", src=I, dst=R), "tp")  # SW201
    z = spmd.all_reduce(x, "tp", src=P, dst=I)  # SW201
    z = spmd.all_gather(y, "tp", src=S(1), dst=R)  # SW212
    z = spmd.reinterpret(x, "tp", src=R, dst=V)  # SW203
    z = spmd.redistribute(y, "tp", src=P, dst=R)
    z = spmd.redistribute(x, "tp", src=P, dst=R)  # SW201
