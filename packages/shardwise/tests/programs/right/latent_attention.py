"""Latent attention: a small latent that every tensor-parallel rank has, heads of its own made of it."""
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
    x = whole(torch.randn(6, 8, generator=dice), I)
    down = torch.nn.Parameter(whole(torch.randn(4, 8, generator=dice), I))
    gain = torch.nn.Parameter(whole(torch.rand(4, generator=dice) + 0.5, I))
    up = torch.nn.Parameter(piece(torch.randn(4, 6, 4, generator=dice)))
    query = torch.nn.Parameter(piece(torch.randn(4, 3, 8, generator=dice)))
    out = torch.nn.Parameter(piece(torch.randn(4, 3, 8, generator=dice)))
    for p, kind in [(down, I), (gain, I), (up, S(0)), (query, S(0)), (out, S(0))]:
        spmd.assert_type(p, {"tp": kind})
    latent = F.rms_norm(x @ down.t(), (4,), gain)
    latent = spmd.convert(latent, "tp", src=I, dst=R)
    q = torch.einsum("td,hkd->htk", spmd.convert(x, "tp", src=I, dst=R), query)
    k, v = torch.einsum("tl,hkl->htk", latent, up).chunk(2, -1)
    mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    y = x + spmd.all_reduce(torch.einsum("htk,hkd->td", mixed, out), "tp", src=P, dst=I)
    y.square().mean().backward()
    torch.optim.SGD([down, gain, up, query, out], lr=0.1).step()
    result = down.detach() * gain.detach()[:, None]
    spmd.assert_type(result, {"tp": I})
