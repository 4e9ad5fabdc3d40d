"""A rank's own number used as if it were the same everywhere, once typed and once not."""

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

import shardwise as spmd
from shardwise import I, P, Scalar, V

dist.init_process_group("nccl")
mesh = init_device_mesh("cuda", (8,), mesh_dim_names=("tp",))

with spmd.set_current_mesh(mesh):
    weight = spmd.assert_type(torch.randn(8, 8, requires_grad=True), {"tp": I})
    start = Scalar(mesh.get_local_rank("tp") * 4, {"tp": V})
    count = Scalar(7.0, {"tp": P})
    y = weight * start  # SW101
    y = weight.narrow(0, start, 1)  # SW101
    y = weight.detach() / count  # SW114
    total = spmd.reinterpret(weight.detach() * start, "tp", src=V, dst=P)
    y = total + start  # SW110
    y = total * count  # SW111
