"""Cross entropy of vocabulary-split logits: maximum and sum taken over this rank's share alone."""

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

import shardwise as spmd
from shardwise import I, P, R, S, V

dist.init_process_group("nccl")
mesh = init_device_mesh("cuda", (8,), mesh_dim_names=("tp",))

with spmd.set_current_mesh(mesh):
    table = spmd.assert_type(torch.randn(4, 16, requires_grad=True), {"tp": S(0)})
    h = spmd.assert_type(torch.randn(6, 16, requires_grad=True), {"tp": I})
    logits = spmd.convert(h, "tp", src=I, dst=R) @ table.T
    shifted = logits - logits.detach().amax(-1, keepdim=True)
    total = spmd.all_reduce(spmd.reinterpret(shifted.exp().sum(-1), "tp", src=V, dst=P), "tp", src=P, dst=I)
    loss = torch.log(total) - shifted[:, 0]  # SW101
    loss = spmd.convert(torch.log(total), "tp", src=I, dst=R) - shifted[:, 0]
    loss.mean().backward()  # SW602
