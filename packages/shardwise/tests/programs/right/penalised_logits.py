"""A penalty of the weights beside a loss of data ranks: each rank adds its share."""
# options: world_size=4

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

import shardwise as spmd
from shardwise import P, R, S, V

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
    weight = torch.nn.Parameter(torch.randn(4, generator=dice))
    spmd.assert_type(weight, {"dp": R})
    loss = torch.tanh(x @ weight).sum() / (x.shape[0] * N)
    loss = loss + 0.1 * weight.square().sum() / N
    spmd.reinterpret(loss, "dp", src=V, dst=P).backward()
    dist.all_reduce(weight.grad)
    torch.optim.SGD([weight], lr=0.1).step()
    result = weight.detach()
    spmd.assert_type(result, {"dp": R})
