"""Annotations as assertions: what the program claims of a result is not what it is."""

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

import shardwise as spmd
from shardwise import I, P, PartitionSpec, R, S

dist.init_process_group("nccl")
mesh = init_device_mesh("cuda", (2, 4), mesh_dim_names=("dp", "tp"))

with spmd.set_current_mesh(mesh):
    x = spmd.assert_type(torch.randn(4, 8), {"dp": S(0), "tp": R})
    weight = spmd.assert_type(torch.randn(8, 8), {"dp": R, "tp": S(0)})
    y = x @ weight.T
    spmd.assert_type(y, {"tp": R})  # SW130
    y = spmd.assert_type(x @ weight.T, {"tp": P})
    spmd.assert_type(weight, {"tp": S(1)})  # SW131
    spmd.assert_type(x, {"dp": R})  # SW130
    spmd.assert_type(x, {"tp": I})
    spmd.assert_type(x.requires_grad_(), {"tp": R})  # SW130
    spmd.assert_type(torch.randn(4, 8), {"tp": R}, PartitionSpec("tp", None))  # SW131
    spmd.assert_type(torch.randn(4), {"tp": S(1)})  # SW132
    spmd.assert_type(x, {"pp": R})  # SW902
