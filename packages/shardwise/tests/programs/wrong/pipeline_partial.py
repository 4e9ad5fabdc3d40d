"""Functional and raw collectives on the wrong kind of operand inside a metric and a pipeline hand-over."""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh

import shardwise as spmd
from shardwise import P, R, S, V

dist.init_process_group("nccl")
mesh = init_device_mesh("cuda", (8,), mesh_dim_names=("dp",))

with spmd.set_current_mesh(mesh), torch.no_grad():
    model = nn.Linear(4, 3)
    spmd.assert_type(list(model.parameters()), {"dp": R})
    x = spmd.assert_type(torch.randn(5, 4), {"dp": S(0)})
    hits = spmd.reinterpret((model(x).argmax(-1) == 0).sum(), "dp", src=V, dst=P)
    accuracy = hits / 40
    dist.all_reduce(accuracy, op=dist.ReduceOp.AVG)
    everything = [torch.zeros_like(x) for _ in range(8)]
    dist.all_gather(everything, x)
    both = torch.cat(everything)
    dist.all_reduce(both, op=dist.ReduceOp.SUM)  # SW201
    best = spmd.all_reduce(hits, "dp", src=P, dst=R)
    if best.item() > 3:
        dist.all_reduce(best, op=dist.ReduceOp.MAX)
