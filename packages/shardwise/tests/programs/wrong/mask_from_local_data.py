"""Dropping tokens by a mask that differs per rank makes shapes differ; masked writes into shared tensors."""

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

import shardwise as spmd
from shardwise import I, P, R, V

dist.init_process_group("nccl")
mesh = init_device_mesh("cuda", (8,), mesh_dim_names=("tp",))

with spmd.set_current_mesh(mesh):
    shared = spmd.assert_type(torch.randn(4, 8, requires_grad=True), {"tp": I})
    local = spmd.assert_type(torch.randn(4, 8), {"tp": V})
    y = shared.masked_fill(local > 0, 0.0)  # SW101
    y = shared[local[:, 0] > 0]  # SW101
    y = torch.where(local > 0, shared, 0.0)  # SW101
    index = local.argmax(0)
    y = shared.gather(0, index[None])  # SW101
    total = spmd.reinterpret(local, "tp", src=V, dst=P)
    y = torch.where(local > 0, total, 0.0)  # SW110
    y = total[local[:, 0] > 0]  # SW110
    weight = spmd.assert_type(torch.randn(8, 8), {"tp": R})
    y = total @ weight
    y = y.index_select(1, torch.tensor([1, 0]))
    y = y.scatter(1, torch.zeros(4, 1, dtype=torch.long), 3.0)  # SW113
    y = total.max(-1).values  # SW112
    y = total.sort(-1).indices  # SW112
