"""A router's z-loss and balance of experts, over the tokens of all data ranks."""
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
    x = piece(torch.randn(8, 4, generator=dice))
    router = torch.nn.Parameter(torch.randn(4, 3, generator=dice))
    spmd.assert_type(router, {"dp": R})
    logits = x @ router
    tokens = x.shape[0] * N
    z = torch.logsumexp(logits, -1).square().sum() / tokens
    chosen = F.one_hot(logits.argmax(-1), 3).float()
    load = spmd.all_reduce(chosen.sum(0), "dp", src=P, dst=R) / tokens
    balance = (logits.softmax(-1).sum(0) / tokens * load).sum() * 3.0
    loss = logits.square().sum() / tokens + 0.1 * z + 0.5 * balance
    spmd.reinterpret(loss, "dp", src=V, dst=P).backward()
    dist.all_reduce(router.grad)
    torch.optim.SGD([router], lr=0.1).step()
    result = router.detach()
    spmd.assert_type(result, {"dp": R})
