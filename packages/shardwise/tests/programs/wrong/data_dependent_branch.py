"""Ranks skip a collective, or leave a loop, by a value that differs between them."""

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

import shardwise as spmd
from shardwise import R, S, V

dist.init_process_group("nccl")
mesh = init_device_mesh("cuda", (8,), mesh_dim_names=("ep",))

with spmd.set_current_mesh(mesh):
    tokens = spmd.assert_type(torch.randn(8, 4), {"ep": S(0)})
    kept = tokens[tokens.sum(-1) > 0]
    if (tokens > 0).any():  # SW116
        tokens = spmd.all_to_all(tokens, "ep", src=V, dst=V)
    counts = (tokens > 0).sum(-1)
    while counts.max() > 100:  # SW116
        counts = counts // 2
    some = [row for row in tokens if bool(row.sum() > 0)]  # SW116
    total = spmd.all_reduce(counts.sum(), "ep", src=V, dst=R)
    if total > 3:
        print(total.item(), kept.shape, len(some))
