"""Two heads predict the next token and the one behind it, over data ranks."""
# options: world_size=4

import torch
import torch.distributed as dist
import torch.nn.functional as F
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
    tokens = piece(torch.arange(48).view(8, 6) * 5 % 7)
    table = torch.nn.Parameter(torch.randn(7, 4, generator=dice))
    heads = torch.nn.Parameter(torch.randn(2, 4, 7, generator=dice))
    for parameter in (table, heads):
        spmd.assert_type(parameter, {"dp": R})
    hidden = F.embedding(tokens, table)
    losses = []
    for ahead in range(2):
        logits = hidden[:, : 5 - ahead] @ heads[ahead]
        wanted = tokens[:, 1 + ahead :]
        losses.append(F.cross_entropy(logits.flatten(0, 1), wanted.flatten(), reduction="sum") / (wanted.numel() * N))
    loss = losses[0] + 0.3 * losses[1]
    spmd.reinterpret(loss, "dp", src=V, dst=P).backward()
    for parameter in (table, heads):
        dist.all_reduce(parameter.grad)
    torch.optim.SGD([table, heads], lr=0.1).step()
    result = heads.detach()
    spmd.assert_type(result, {"dp": R})
