"""Mean and variance of a batch in parts, and the running ones."""
# options: world_size=4

import torch
import torch.distributed as dist
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
    x = piece(torch.randn(8, 4, generator=dice))
    running = whole(torch.zeros(4))
    count = x.shape[0] * N
    mean = spmd.all_reduce(x.sum(0), "dp", src=P, dst=R) / count
    variance = spmd.all_reduce((x - mean).square().sum(0), "dp", src=P, dst=R) / count
    running.mul_(0.9).add_(mean, alpha=0.1)
    normed = (x - mean) * torch.rsqrt(variance + 1e-5)
    result = spmd.all_gather(normed, "dp", src=S(0), dst=R) + running
    spmd.assert_type(result, {"dp": R})
