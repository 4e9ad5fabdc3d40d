"""Scores whose head width is split over tp are summed only after the softmax."""

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

import shardwise as spmd
from shardwise import P, R, S

dist.init_process_group("nccl")
mesh = init_device_mesh("cuda", (8,), mesh_dim_names=("tp",))

with spmd.set_current_mesh(mesh):
    q = spmd.assert_type(torch.randn(2, 4, 2), {"tp": S(2)})
    k = spmd.assert_type(torch.randn(2, 4, 2), {"tp": S(2)})
    v = spmd.assert_type(torch.randn(2, 4, 16), {"tp": R})
    scores = spmd.einsum("bqd,bkd->bqk", q, k, out_partial_axes="tp") / 4.0
    scores = scores.masked_fill(torch.ones(4, 4).triu(1).bool(), float("-inf"))  # SW113
    probabilities = torch.softmax(scores, -1)
    again = spmd.einsum("bqd,bkd->bqk", q, k, out_partial_axes="tp")
    probabilities = torch.softmax(again, -1)  # SW112
    out = spmd.all_reduce(probabilities @ v, "tp", src=P, dst=R)
