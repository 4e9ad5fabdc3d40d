# options: world_size=4
"""The tensor-parallel sum runs over the data-parallel group, whose size is the same."""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh

import shardwise as spmd
from shardwise import P, R, S

dist.init_process_group("nccl")
mesh = init_device_mesh("cuda", (2, 2), mesh_dim_names=("dp", "tp"))
dp_group, tp_group = mesh.get_group("dp"), mesh.get_group("tp")

with spmd.set_current_mesh(mesh):
    weight = spmd.assert_type(torch.randn(16, 4), {dp_group: R, tp_group: S(1)})
    x = spmd.assert_type(torch.randn(2, 4), {dp_group: S(0), tp_group: S(1)})
    y = spmd.linear(x, weight, out_partial_axes=tp_group)
    y = spmd.all_reduce(y, dp_group, src=P, dst=R)
    F.gelu(y)  # SW112
