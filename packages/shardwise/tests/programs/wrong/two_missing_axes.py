"""Annotations that forget one axis of the mesh, and a collective over an axis that nobody spoke about."""

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

import shardwise as spmd
from shardwise import I, P, R, S

dist.init_process_group("nccl")
mesh = init_device_mesh("cuda", (2, 2, 2), mesh_dim_names=("dp", "cp", "tp"))

with spmd.set_current_mesh(mesh):
    x = spmd.assert_type(torch.randn(4, 8), {"dp": S(0), "cp": R})
    weight = spmd.assert_type(torch.randn(8, 8), {"dp": R, "cp": R, "tp": I})
    y = x @ weight  # SW103
    y = y + 1
    z = x * 2  # SW103
    z = spmd.all_reduce(x, "tp", src=P, dst=R)  # SW207
    dist.all_reduce(x, group=mesh.get_group("tp"))  # SW207
    z = spmd.all_gather(torch.randn(4, 8), "cp", src=S(0), dst=R)  # SW207
