"""The norms of gradients and weights, logged with the ratio of both."""
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
    x = whole(torch.randn(5, 3, generator=dice))
    spmd.all_reduce((x @ weight.t()).square().sum(), "tp", src=P, dst=I).backward()
    squares = torch.stack([weight.grad.square().sum(), weight.detach().square().sum()])
    norms = spmd.all_reduce(squares, "tp", src=P, dst=R).sqrt()
    result = torch.cat([norms, (norms[0] / (norms[1] + 1e-8))[None]])
    torch.optim.SGD([weight], lr=0.1).step()
    spmd.assert_type(result, {"tp": R})
