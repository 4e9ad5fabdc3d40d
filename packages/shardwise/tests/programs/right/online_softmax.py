"""Attention over keys in parts: maxima and sums of the parts are put together."""
# options: world_size=4

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

import shardwise as spmd
from shardwise import P, R, S

dist.init_process_group("gloo")
N, RANK = dist.get_world_size(), dist.get_rank()
mesh = init_device_mesh("cpu", (N,), mesh_dim_names=("cp",))
dice = torch.Generator().manual_seed(0)


def piece(x, dim=0):
    return spmd.assert_type(x.chunk(N, dim)[RANK].clone(), {"cp": S(dim)})


def whole(x):
    return spmd.assert_type(x.clone(), {"cp": R})


with spmd.set_current_mesh(mesh):
    queries, keys = whole(torch.randn(3, 4, generator=dice)), piece(torch.randn(8, 4, generator=dice))
    values = piece(torch.randn(8, 4, generator=dice))
    scores = queries @ keys.t()
    top = scores.amax(-1)
    dist.all_reduce(top, op=dist.ReduceOp.MAX)
    weights = (scores - top[:, None]).exp()
    total = spmd.all_reduce(weights.sum(-1), "cp", src=P, dst=R)
    mixed = spmd.all_reduce(weights @ values, "cp", src=P, dst=R)
    result = mixed / total[:, None]
    spmd.assert_type(result, {"cp": R})
