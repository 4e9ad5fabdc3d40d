"""RMSNorm on a sharded sequence, before a pair of tensor parallel layers."""
# options: world_size=4

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

import shardwise as spmd
from shardwise import P, R, S, V

dist.init_process_group("gloo")
N, RANK = dist.get_world_size(), dist.get_rank()
mesh = init_device_mesh("cpu", (N,), mesh_dim_names=("tp",))
dice = torch.Generator().manual_seed(0)


def piece(x, dim=0):
    return spmd.assert_type(x.chunk(N, dim)[RANK].clone(), {"tp": S(dim)})


def whole(x):
    return spmd.assert_type(x.clone(), {"tp": R})


with spmd.set_current_mesh(mesh):
    x = piece(torch.randn(8, 4, generator=dice))
    gain = torch.nn.Parameter(torch.rand(4, generator=dice))
    up, down = torch.randn(4, 12, generator=dice), torch.randn(12, 4, generator=dice)
    up = torch.nn.Parameter(up.chunk(N, 1)[RANK].clone())
    down = torch.nn.Parameter(down.chunk(N, 0)[RANK].clone())
    spmd.assert_type(gain, {"tp": R})
    spmd.assert_type(up, {"tp": S(1)})
    spmd.assert_type(down, {"tp": S(0)})
    normed = x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * gain
    hidden = torch.relu(spmd.all_gather(normed, "tp", src=S(0), dst=R) @ up) @ down
    y = x + spmd.reduce_scatter(hidden, "tp", src=P, dst=S(0))
    spmd.reinterpret(y.square().sum(), "tp", src=V, dst=P).backward()
    dist.all_reduce(gain.grad)
    optimizer = torch.optim.SGD([gain, up, down], lr=0.01)
    optimizer.step()
    result = gain.detach()
    spmd.assert_type(result, {"tp": R})
