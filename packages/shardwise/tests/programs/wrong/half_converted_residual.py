"""One branch of a residual block ends replicate, the stream is invariant; convert was forgotten on the way out."""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh

import shardwise as spmd
from shardwise import I, P, R, S

dist.init_process_group("nccl")
mesh = init_device_mesh("cuda", (8,), mesh_dim_names=("tp",))

with spmd.set_current_mesh(mesh):
    embedding = spmd.assert_type(torch.randn(32, 16, requires_grad=True), {"tp": I})
    up = spmd.assert_type(torch.randn(4, 16, requires_grad=True), {"tp": S(0)})
    down = spmd.assert_type(torch.randn(16, 4, requires_grad=True), {"tp": S(1)})
    ids = spmd.assert_type(torch.randint(32, (2, 8)), {"tp": I})
    x = F.embedding(ids, embedding)
    h = F.relu(F.linear(spmd.convert(x, "tp", src=I, dst=R), up))
    h = spmd.all_reduce(spmd.linear(h, down, out_partial_axes="tp"), "tp", src=P, dst=R)
    x = x + h  # SW101
    x = torch.cat([F.embedding(ids, embedding), h], -1)  # SW101
    x = torch.stack((h, F.embedding(ids, embedding)))  # SW101
