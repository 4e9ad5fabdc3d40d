"""Weight decay for matrices and none for vectors, on shards."""
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
    gain = torch.nn.Parameter(torch.rand(8, generator=dice).chunk(N)[RANK].clone())
    for parameter in (weight, gain):
        spmd.assert_type(parameter, {"tp": S(0)})
    groups = [{"params": [weight], "weight_decay": 0.1}, {"params": [gain], "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=0.1)
    x = whole(torch.randn(5, 3, generator=dice))
    spmd.all_reduce((torch.tanh(x @ weight.t()) * gain).sum(), "tp", src=P, dst=I).backward()
    optimizer.step()
    result = spmd.all_gather(weight.detach(), "tp", src=S(0), dst=R)
    spmd.assert_type(result, {"tp": R})
