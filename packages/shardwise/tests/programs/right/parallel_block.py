"""Attention and feed-forward side by side, with one sum for both."""
# options: world_size=4

import torch
import torch.distributed as dist
import torch.nn.functional as F
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
    gain = torch.nn.Parameter(whole(torch.rand(4, generator=dice) + 0.5, I))
    up = torch.nn.Parameter(piece(torch.randn(8, 4, generator=dice)))
    down = torch.nn.Parameter(piece(torch.randn(4, 8, generator=dice), 1))
    left = torch.nn.Parameter(piece(torch.randn(4, 3, 4, generator=dice)))
    right = torch.nn.Parameter(piece(torch.randn(4, 3, 4, generator=dice)))
    for p, kind in [(gain, I), (up, S(0)), (down, S(1)), (left, S(0)), (right, S(0))]:
        spmd.assert_type(p, {"tp": kind})
    for _ in range(2):
        h = spmd.convert(F.layer_norm(x, (4,), gain), "tp", src=I, dst=R)
        feed = F.gelu(h @ up.t()) @ down.t()
        q = torch.einsum("td,hkd->htk", h, left)
        heads = (q @ q.transpose(1, 2)).softmax(-1) @ q
        attended = torch.einsum("htk,hkd->td", heads, right)
        x = x + spmd.all_reduce(feed + attended, "tp", src=P, dst=I)
    x.square().mean().backward()
    torch.optim.SGD([gain, up, down, left, right], lr=0.01).step()
    result = gain.detach()
    spmd.assert_type(result, {"tp": I})
