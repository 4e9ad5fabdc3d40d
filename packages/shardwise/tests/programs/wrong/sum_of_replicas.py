"""What is equal on all ranks is summed: replicated gradients, an invariant activation, statistics already reduced."""

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as funcol
from torch.distributed.device_mesh import init_device_mesh

import shardwise as spmd
from shardwise import I, P, R, S, V

dist.init_process_group("nccl")
mesh = init_device_mesh("cuda", (8,), mesh_dim_names=("dp",))

with spmd.set_current_mesh(mesh), torch.no_grad():
    x = spmd.assert_type(torch.randn(4, 8), {"dp": S(0)})
    mean = spmd.all_reduce(x.mean(0), "dp", src=V, dst=R) / 8
    dist.all_reduce(mean)  # SW201
    seen = spmd.assert_type(torch.tensor(100), {"dp": I})
    dist.all_reduce(seen)  # SW201
    piece = torch.empty(1)
    dist.reduce_scatter_tensor(piece, mean)  # SW201
    y = funcol.all_reduce(spmd.all_reduce(x, "dp", src=V, dst=R), "sum", mesh.get_group("dp"))  # SW201
    z = spmd.reduce_scatter(spmd.all_gather(x, "dp", src=S(0), dst=R), "dp", src=P, dst=S(0))  # SW201
