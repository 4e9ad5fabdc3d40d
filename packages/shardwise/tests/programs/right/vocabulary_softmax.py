"""Stable softmax and cross entropy over a vocabulary that is cut over the ranks, with raw collectives only."""

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

import shardwise as spmd
from shardwise import P, R, S

dist.init_process_group("nccl")
mesh = init_device_mesh("cuda", (8,), mesh_dim_names=("tp",))
group = mesh.get_group("tp")

with spmd.set_current_mesh(mesh):
    table = spmd.assert_type(torch.randn(4, 16, requires_grad=True), {"tp": S(0)})
    h = spmd.assert_type(torch.randn(6, 16), {"tp": R})
    logits = h @ table.T
    with torch.no_grad():
        largest = logits.detach().amax(-1, keepdim=True)
        dist.all_reduce(largest, op=dist.ReduceOp.MAX, group=group)
        exps = (logits - largest).exp()
        total = exps.sum(-1, keepdim=True)
        dist.all_reduce(total, group=group)
        softmax = exps / total
    # The same with typed collectives, and with gradients: the maximum alone has none.
    top = spmd.all_reduce(torch.max(logits.detach(), dim=-1)[0], "tp", src=P, dst=R, op="max")
    exps = (logits - top.unsqueeze(-1)).exp()
    total = spmd.all_reduce(spmd.sum(exps, -1, out_partial_axes="tp"), "tp", src=P, dst=R)
    loss = spmd.convert((total.log() + top).sum(), "tp", src=R, dst=P)
    loss.backward()
