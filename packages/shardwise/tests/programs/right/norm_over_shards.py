"""A norm over hidden units that are split, from sums over all ranks."""
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
    x = whole(torch.randn(6, 4, generator=dice))
    up = torch.nn.Parameter(piece(torch.randn(8, 4, generator=dice)))
    gain = torch.nn.Parameter(piece(torch.rand(8, generator=dice) + 0.5))
    spmd.assert_type(up, {"tp": S(0)})
    spmd.assert_type(gain, {"tp": S(0)})
    h = x @ up.t()
    width = h.shape[-1] * N
    mean = spmd.all_reduce(h.sum(-1, keepdim=True), "tp", src=P, dst=R) / width
    var = spmd.all_reduce((h - mean).square().sum(-1, keepdim=True), "tp", src=P, dst=R) / width
    y = (h - mean) * torch.rsqrt(var + 1e-5) * gain
    loss = spmd.all_reduce((y.square() * y.detach().tanh()).sum(), "tp", src=P, dst=I) / (6 * width)
    loss.backward()
    torch.optim.SGD([up, gain], lr=0.5).step()
    result = spmd.all_reduce(up.detach().square().sum(0), "tp", src=P, dst=R)
    spmd.assert_type(result, {"tp": R})
