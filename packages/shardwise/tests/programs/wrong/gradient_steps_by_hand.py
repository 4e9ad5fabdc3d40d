"""Parameters updated without an optimizer: one with its own rank's addend, one with the sum, one summed twice."""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh

import shardwise as spmd
from shardwise import I, P, R, S, V

dist.init_process_group("nccl")
mesh = init_device_mesh("cuda", (2, 4), mesh_dim_names=("dp", "tp"))
dp, tp = mesh.get_group("dp"), mesh.get_group("tp")

with spmd.set_current_mesh(mesh):
    first, second = nn.Parameter(torch.randn(4)), nn.Parameter(torch.randn(4))
    rows = nn.Parameter(torch.randn(8, 4))
    spmd.assert_type([first, second], {"dp": R, "tp": I})
    spmd.assert_type(rows, {"dp": R, "tp": S(0)})
    x = spmd.assert_type(torch.randn(4), {"dp": S(0), "tp": I})
    h = spmd.convert(x * first + second, "tp", src=I, dst=R)
    loss = spmd.all_reduce((rows * h).square().sum(), "tp", src=V, dst=I)
    spmd.reinterpret(loss, "dp", src=V, dst=P).backward()
    first.data.add_(first.grad, alpha=-0.1)  # SW113
    dist.all_reduce(second.grad, group=dp)
    second.data.add_(second.grad, alpha=-0.1)
    dist.all_reduce(second.grad, group=dp)  # SW605
    dist.all_reduce(rows.grad, group=tp)  # SW605
    with torch.no_grad():
        rows -= 0.1 * rows.grad
