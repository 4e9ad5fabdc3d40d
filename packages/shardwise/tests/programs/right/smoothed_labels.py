"""Label smoothing where each rank has a part of the vocabulary."""
# options: world_size=4

import torch
import torch.distributed as dist
import torch.nn.functional as F
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
    logits, targets = piece(torch.randn(6, 16, generator=dice), 1), whole(torch.arange(6) * 2)
    top = logits.amax(-1)
    dist.all_reduce(top, op=dist.ReduceOp.MAX)
    logits = logits - top[:, None]
    total = spmd.all_reduce(logits.exp().sum(-1), "tp", src=P, dst=R).log()
    mean = spmd.all_reduce(logits.sum(-1), "tp", src=P, dst=R) / 16
    hot = piece(F.one_hot(torch.arange(6) * 2, 16).float(), 1)
    picked = spmd.all_reduce((logits * hot).sum(-1), "tp", src=P, dst=R)
    result = (total - 0.9 * picked - 0.1 * mean).mean()
    spmd.assert_type(result, {"tp": R})
