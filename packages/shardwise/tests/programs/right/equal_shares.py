"""Equal shares of prototypes over the samples of all data ranks, as in SwAV."""
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


def whole(x, kind=R):
    return spmd.assert_type(x.clone(), {"dp": kind})


def assign(scores):
    samples = len(scores) * N
    q = (scores / 0.5).exp()
    q = q / spmd.all_reduce(q.sum(), "dp", src=P, dst=R)
    for _ in range(3):
        q = q / spmd.all_reduce(q.sum(0), "dp", src=P, dst=R) / q.shape[1]
        q = q / q.sum(1, keepdim=True) / samples
    return q * samples


with spmd.set_current_mesh(mesh):
    x = piece(torch.randn(8, 5, generator=dice))
    prototypes = torch.nn.Parameter(whole(torch.randn(3, 5, generator=dice)))
    spmd.assert_type(prototypes, {"dp": R})
    scores = F.normalize(x, dim=-1) @ F.normalize(prototypes, dim=-1).t()
    codes = assign(scores.detach())
    loss = -(codes * (scores / 0.1).log_softmax(-1)).sum() / (len(x) * N)
    spmd.reinterpret(loss, "dp", src=V, dst=P).backward()
    dist.all_reduce(prototypes.grad)
    torch.optim.SGD([prototypes], lr=0.1).step()
    result = prototypes.detach()
    spmd.assert_type(result, {"dp": R})
