"""Sums that torch.distributed makes in place, and autograd need not know of: for logs, counts and known gradients."""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import init_device_mesh

import shardwise as spmd
from shardwise import I, P, R, S, V

dist.init_process_group("nccl")
mesh = init_device_mesh("cuda", (2, 4), mesh_dim_names=("dp", "tp"))
dp, tp = mesh.get_group("dp"), mesh.get_group("tp")

with spmd.set_current_mesh(mesh):
    up = spmd.assert_type(nn.Parameter(torch.randn(8, 16)), {"dp": R, "tp": S(0)})
    down = spmd.assert_type(nn.Parameter(torch.randn(16, 8)), {"dp": R, "tp": S(1)})
    optimizer = torch.optim.SGD([up, down], lr=0.1)
    for _ in range(2):
        x = spmd.assert_type(torch.randn(4, 16), {"dp": S(0), "tp": R})
        y = spmd.linear(F.gelu(F.linear(x, up)), down, out_partial_axes="tp")
        dist.all_reduce(y, group=tp)
        y = spmd.mutate_type(y, "tp", src=R, dst=I)  # every tp rank repeats what follows: the gradient is whole
        total = y.square().sum()
        balance = spmd.all_reduce(F.linear(x, up).square().sum(), "tp", src=V, dst=I)
        loss = spmd.reinterpret((total + 0.01 * balance) / 8, "dp", src=V, dst=P)
        dist.all_reduce(total, group=dp)  # for the log, though nobody has detached it
        loss.backward()
        dist.all_reduce(loss, group=dp)
        print(f"loss {loss.item():.3f}, of which {total.item() / 8:.3f}")
        with torch.no_grad():
            largest = F.linear(x, up).abs().sum(-1)
            dist.all_reduce(largest, group=tp)
        for parameter in (up, down):
            dist.all_reduce(parameter.grad, group=dp)
        optimizer.step()
        optimizer.zero_grad()
