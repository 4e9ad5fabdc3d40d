"""Functional collectives, with their asynchronous results, in a data-parallel metric and a tensor-parallel layer."""

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as funcol
from torch.distributed.device_mesh import init_device_mesh

import shardwise as spmd
from shardwise import R, S, V

dist.init_process_group("nccl")
mesh = init_device_mesh("cuda", (2, 4), mesh_dim_names=("dp", "tp"))

with spmd.set_current_mesh(mesh), torch.no_grad():
    weight = spmd.assert_type(torch.randn(16, 4), {"dp": R, "tp": S(1)})
    x = spmd.assert_type(torch.randn(2, 4), {"dp": S(0), "tp": S(1)})
    partial = spmd.linear(x, weight, out_partial_axes="tp")
    y = funcol.all_reduce(partial, "sum", mesh.get_group("tp"))
    spmd.assert_type(y, {"tp": R})
    z = torch.relu(y) + 1
    everything = funcol.all_gather_tensor(z, 0, mesh.get_group("dp"))
    spmd.assert_type(everything, {"dp": R})
    if everything.sum().item() > 0:
        print(everything.mean().item())
    pieces = funcol.reduce_scatter_tensor(spmd.linear(x, weight, out_partial_axes="tp"), "sum", 1, (mesh, 1))
    spmd.assert_type(pieces, {"tp": V})
    waited = funcol.wait_tensor(pieces)
    print((waited * 2).shape)
