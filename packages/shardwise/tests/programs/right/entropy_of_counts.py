"""Counts of classes over data ranks, their entropy, and how often a guess is right."""
# options: world_size=4

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh

import shardwise as spmd
from shardwise import P, R, S

dist.init_process_group("gloo")
N, RANK = dist.get_world_size(), dist.get_rank()
mesh = init_device_mesh("cpu", (N,), mesh_dim_names=("dp",))
dice = torch.Generator().manual_seed(0)


def piece(x, dim=0):
    return spmd.assert_type(x.chunk(N, dim)[RANK].clone(), {"dp": S(dim)})


def whole(x):
    return spmd.assert_type(x.clone(), {"dp": R})


with spmd.set_current_mesh(mesh):
    logits, targets = piece(torch.randn(16, 4, generator=dice)), piece(torch.arange(16) % 4)
    guesses = F.one_hot(logits.argmax(-1), 4).float()
    counts = spmd.all_reduce(guesses.sum(0), "dp", src=P, dst=R)
    shares = counts / counts.sum()
    entropy = -(shares * (shares + 1e-9).log()).sum()
    right = spmd.all_reduce((logits.argmax(-1) == targets).float().sum(), "dp", src=P, dst=R)
    result = torch.stack([entropy, right / (targets.shape[0] * N)])
    spmd.assert_type(result, {"dp": R})
