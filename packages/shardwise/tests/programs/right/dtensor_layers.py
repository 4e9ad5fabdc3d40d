"""Tensor parallelism by DTensor inside, types outside: parallelize_module takes and gives typed local tensors."""

# options: once    DTensor remembers process groups by mesh, those of an earlier run in the same process too

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

import shardwise as spmd
from shardwise import I, P, R, S, V

dist.init_process_group("nccl")
mesh = init_device_mesh("cuda", (2, 4), mesh_dim_names=("dp", "tp"))

with spmd.set_current_mesh(mesh):
    norm = nn.LayerNorm(8)
    spmd.assert_type(list(norm.parameters()), {"dp": R, "tp": I})
    mlp = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 8))
    parallelize_module(mlp, mesh["tp"], {"0": ColwiseParallel(), "2": RowwiseParallel()})
    x = spmd.assert_type(torch.randn(4, 8), {"dp": S(0), "tp": I})
    y = spmd.assert_type(mlp(norm(x)), {"dp": V, "tp": I})
    weight = DTensor.from_local(torch.randn(8, 2), mesh["tp"], [Shard(1)])
    pieces = spmd.assert_type(weight.to_local(), {"dp": R, "tp": S(1)})
    partial = spmd.reinterpret(F.linear(spmd.convert(y[:, :2], "tp", src=I, dst=R), pieces), "tp", src=V, dst=P)
    total = DTensor.from_local(partial, mesh["tp"], [Partial()]).redistribute(mesh["tp"], [Replicate()])
    z = spmd.assert_type(total.to_local(), {"dp": V, "tp": I})
    loss = F.mse_loss(x + y, z)
    spmd.reinterpret(loss, "dp", src=V, dst=P).backward()
