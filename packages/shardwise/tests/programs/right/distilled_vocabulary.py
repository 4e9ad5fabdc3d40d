"""Distillation where the logits of student and teacher are split over the vocabulary."""
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


def whole(x, kind=R):
    return spmd.assert_type(x.clone(), {"tp": kind})


def log_total(z):
    top = spmd.all_reduce(z.detach().amax(-1, keepdim=True), "tp", src=P("max"), dst=R)
    return spmd.all_reduce((z - top).exp().sum(-1, keepdim=True), "tp", src=P, dst=R).log() + top


with spmd.set_current_mesh(mesh):
    x = whole(torch.randn(6, 4, generator=dice))
    head = torch.nn.Parameter(piece(torch.randn(16, 4, generator=dice)))
    spmd.assert_type(head, {"tp": S(0)})
    teacher = piece(torch.randn(6, 16, generator=dice), 1)
    logits = x @ head.t()
    log_s = logits - log_total(logits)
    log_t = teacher / 2.0 - log_total(teacher / 2.0)
    loss = spmd.all_reduce((log_t.exp() * (log_t - log_s)).sum(), "tp", src=P, dst=I) / 6
    loss.backward()
    torch.optim.SGD([head], lr=0.5).step()
    total = spmd.all_reduce(head.detach().square().sum(0), "tp", src=P, dst=R)
    result = total
    spmd.assert_type(result, {"tp": R})
