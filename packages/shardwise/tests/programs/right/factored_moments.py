"""Adafactor's factored second moments of a weight whose rows are split."""
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


with spmd.set_current_mesh(mesh):
    x = whole(torch.randn(6, 4, generator=dice), I)
    up = torch.nn.Parameter(piece(torch.randn(8, 4, generator=dice)))
    spmd.assert_type(up, {"tp": S(0)})
    h = spmd.convert(x, "tp", src=I, dst=R) @ up.t()
    loss = spmd.all_reduce(h.tanh().square().sum(), "tp", src=P, dst=I) / (h.numel() * N)
    loss.backward()
    with torch.no_grad():
        squared = up.grad.square() + 1e-30
        row = squared.mean(1)
        col = spmd.all_reduce(squared.sum(0), "tp", src=P, dst=R) / (squared.shape[0] * N)
        total = spmd.all_reduce(row.sum(), "tp", src=P, dst=R) / (row.shape[0] * N)
        update = up.grad * (row / total).rsqrt()[:, None] * col.rsqrt()[None, :]
        rms = (spmd.all_reduce(update.square().sum(), "tp", src=P, dst=R) / (update.numel() * N)).sqrt()
        up -= 0.1 * update / rms.clamp(min=1.0)
    result = spmd.all_reduce(up.detach().square().sum(0), "tp", src=P, dst=R)
    spmd.assert_type(result, {"tp": R})
