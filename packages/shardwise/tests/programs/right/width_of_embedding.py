"""An embedding that is multiplied by the root of its width, which is split."""
# options: world_size=4

import math

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh

import shardwise as spmd
from shardwise import I, P, R, S

dist.init_process_group("gloo")
N, RANK = dist.get_world_size(), dist.get_rank()
mesh = init_device_mesh("cpu", (N,), mesh_dim_names=("tp",))
dice = torch.Generator().manual_seed(0)


def piece(x, dim=0):
    return spmd.assert_type(x.chunk(N, dim)[RANK].clone(), {"tp": S(dim)})


def whole(x, kind=R):
    return spmd.assert_type(x.clone(), {"tp": kind})


with spmd.set_current_mesh(mesh):
    table = torch.nn.Parameter(piece(torch.randn(7, 8, generator=dice), 1))
    spmd.assert_type(table, {"tp": S(1)})
    ids = whole(torch.arange(6) % 7)
    x = F.embedding(ids, table) * math.sqrt(table.shape[1] * N)
    y = spmd.all_gather(x, "tp", src=S(1), dst=I)
    y.tanh().square().mean().backward()
    torch.optim.SGD([table], lr=0.5).step()
    result = spmd.all_reduce(table.detach().square().sum(1), "tp", src=P, dst=R)
    spmd.assert_type(result, {"tp": R})
