"""Shampoo's statistics of a gradient in parts: one of the whole, one of each part."""
# options: world_size=4

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

import shardwise as spmd
from shardwise import P, R, S

dist.init_process_group("gloo")
N, RANK = dist.get_world_size(), dist.get_rank()
mesh = init_device_mesh("cpu", (N,), mesh_dim_names=("tp",))
dice = torch.Generator().manual_seed(0)


def piece(x, dim=0):
    return spmd.assert_type(x.chunk(N, dim)[RANK].clone(), {"tp": S(dim)})


def whole(x):
    return spmd.assert_type(x.clone(), {"tp": R})


with spmd.set_current_mesh(mesh):
    gradient = piece(torch.randn(4, 8, generator=dice), 1)
    rows = whole(torch.eye(4) * 0.1)
    rows.mul_(0.9).add_(spmd.all_reduce(gradient @ gradient.t(), "tp", src=P, dst=R), alpha=0.1)
    values, vectors = torch.linalg.eigh(rows)
    root = vectors @ torch.diag(values.clamp(min=1e-6) ** -0.25) @ vectors.t()
    result = spmd.all_gather(root @ gradient, "tp", src=S(1), dst=R)
    spmd.assert_type(result, {"tp": R})
