"""An average of weights in time, of shards and of what all ranks have."""
# options: world_size=4

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

import shardwise as spmd
from shardwise import I, P, R, S

dist.init_process_group("gloo")
N, RANK = dist.get_world_size(), dist.get_rank()
mesh = init_device_mesh("cpu", (N,), mesh_dim_names=("tp",))
dice = torch.Generator().manual_seed(0)


def piece(x, dim=0):
    return spmd.assert_type(x.chunk(N, dim)[RANK].clone(), {"tp": S(dim)})


def whole(x):
    return spmd.assert_type(x.clone(), {"tp": R})


with spmd.set_current_mesh(mesh):
    weight = torch.nn.Parameter(torch.randn(8, 3, generator=dice).chunk(N)[RANK].clone())
    spmd.assert_type(weight, {"tp": S(0)})
    average = spmd.assert_type(weight.detach().clone(), {"tp": S(0)})
    optimizer = torch.optim.SGD([weight], lr=0.1)
    x = whole(torch.randn(5, 3, generator=dice))
    for _ in range(3):
        optimizer.zero_grad()
        spmd.all_reduce((x @ weight.t()).square().sum(), "tp", src=P, dst=I).backward()
        optimizer.step()
        average.lerp_(weight.detach(), 0.25)
    result = spmd.all_gather(average, "tp", src=S(0), dst=R)
    spmd.assert_type(result, {"tp": R})
