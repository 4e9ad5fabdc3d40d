"""The largest logits of a vocabulary in parts: each rank's candidates, then those of all."""
# options: world_size=4

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

import shardwise as spmd
from shardwise import R, S, V

dist.init_process_group("gloo")
N, RANK = dist.get_world_size(), dist.get_rank()
mesh = init_device_mesh("cpu", (N,), mesh_dim_names=("tp",))
dice = torch.Generator().manual_seed(0)


def piece(x, dim=0):
    return spmd.assert_type(x.chunk(N, dim)[RANK].clone(), {"tp": S(dim)})


def whole(x):
    return spmd.assert_type(x.clone(), {"tp": R})


with spmd.set_current_mesh(mesh):
    logits = spmd.assert_type(torch.randn(5, 16, generator=dice).chunk(N, 1)[RANK].clone(), {"tp": V})
    values, positions = logits.topk(3, -1)
    positions = positions + RANK * logits.shape[1]
    both = [spmd.all_gather(x, "tp", src=V, dst=R) for x in (values, positions)]
    values, positions = (x.permute(1, 0, 2).flatten(1) for x in both)
    best, at = values.topk(3, -1)
    result = torch.stack([best, positions.gather(1, at).float()])
    spmd.assert_type(result, {"tp": R})
