"""The layer reduces its output, and so does its caller."""

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

import shardwise as spmd
from shardwise import P, R, S

dist.init_process_group("nccl")
mesh = init_device_mesh("cuda", (8,), mesh_dim_names=("tp",))


def row_parallel(x, weight):
    return spmd.all_reduce(spmd.linear(x, weight, out_partial_axes="tp"), "tp", src=P, dst=R)


with spmd.set_current_mesh(mesh):
    weight = spmd.assert_type(torch.randn(16, 4), {"tp": S(1)})
    y = row_parallel(spmd.assert_type(torch.randn(2, 4), {"tp": S(1)}), weight)
    y = spmd.all_reduce(y, "tp", src=P, dst=R)  # SW201
    raw = y.clone()
    dist.all_reduce(raw, group=mesh.get_group("tp"))  # SW201
