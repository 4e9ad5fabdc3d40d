"""LARS by hand: ratios of the norms of whole weights that are split."""
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
    bias = torch.nn.Parameter(whole(torch.randn(4, generator=dice), I))
    down = torch.nn.Parameter(piece(torch.randn(4, 8, generator=dice), 1))
    spmd.assert_type(up, {"tp": S(0)})
    spmd.assert_type(down, {"tp": S(1)})
    spmd.assert_type(bias, {"tp": I})
    h = torch.relu(spmd.convert(x, "tp", src=I, dst=R) @ up.t())
    y = spmd.all_reduce(h @ down.t(), "tp", src=P, dst=I) + bias
    y.square().mean().backward()
    with torch.no_grad():
        for p in [up, down]:
            sizes = torch.stack([p.square().sum(), p.grad.square().sum()])
            weight_norm, grad_norm = spmd.all_reduce(sizes, "tp", src=P, dst=R).sqrt().unbind()
            p -= 0.1 * weight_norm / (grad_norm + 0.01 * weight_norm) * (p.grad + 0.01 * p)
        bias -= 0.1 * bias.norm() / (bias.grad.norm() + 0.01 * bias.norm()) * bias.grad
    result = spmd.all_reduce(up.detach().square().sum(0) + down.detach().square().sum(1), "tp", src=P, dst=R)
    spmd.assert_type(result, {"tp": R})
