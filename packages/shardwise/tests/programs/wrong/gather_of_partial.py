"""A pending sum is gathered, scattered, exchanged, broadcast or sent as if it were data."""

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as funcol
from torch.distributed.device_mesh import init_device_mesh

import shardwise as spmd
from shardwise import R, S, V

dist.init_process_group("nccl")
mesh = init_device_mesh("cuda", (8,), mesh_dim_names=("tp",))
group = mesh.get_group("tp")

with spmd.set_current_mesh(mesh), torch.no_grad():
    weight = spmd.assert_type(torch.randn(16, 4), {"tp": S(1)})
    x = spmd.assert_type(torch.randn(8, 4), {"tp": S(1)})
    y = spmd.linear(x, weight, out_partial_axes="tp")
    z = spmd.all_gather(y, "tp", src=S(1), dst=R)  # SW201
    z = spmd.all_to_all(y, "tp", src=V, dst=V)  # SW201
    z = spmd.convert(y, "tp", src=R, dst=V)  # SW201
    pieces = [torch.empty(8, 16) for _ in range(8)]
    dist.all_gather(pieces, y)  # SW210
    dist.broadcast(y.clone(), src=0)  # SW210
    dist.all_reduce(y.clone(), op=dist.ReduceOp.MAX)  # SW210
    dist.send(y, dst=1)  # SW210
    z = funcol.all_gather_tensor(y, 0, group)  # SW210
    z = funcol.all_reduce(y, "max", group)  # SW210
    z = funcol.all_reduce(y, "sum", group)
