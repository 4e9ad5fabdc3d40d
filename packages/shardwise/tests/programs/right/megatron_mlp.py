"""Megatron-LM's tensor-parallel MLP, its two region functions spelled as autograd functions with rules."""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import init_device_mesh

import shardwise as spmd
from shardwise import I, P, R, S, V, rules

dist.init_process_group("nccl")
mesh = init_device_mesh("cuda", (2, 4), mesh_dim_names=("dp", "tp"))
TP = mesh.get_group("tp")


class CopyToTensorParallel(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        return x.view_as(x)

    @staticmethod
    def backward(ctx, gradient):
        gradient = gradient.contiguous()
        dist.all_reduce(gradient, group=ctx.group)
        return gradient, None

    @staticmethod
    def spmd_typecheck(*, x, group):
        return rules.convert(x, group, src=I, dst=R)


class ReduceFromTensorParallel(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        x = x.clone()
        dist.all_reduce(x, group=group)
        return x

    @staticmethod
    def backward(ctx, gradient):
        return gradient, None

    @staticmethod
    def spmd_typecheck(*, x, group):
        return rules.all_reduce(x, group, src=P, dst=I)


class ColumnParallelLinear(nn.Module):
    def __init__(self, width, out, parts):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(out // parts, width, device="cuda") * 0.02)
        self.bias = nn.Parameter(torch.zeros(out // parts, device="cuda"))
        spmd.assert_type(self.weight, {"dp": R, "tp": S(0)})
        spmd.assert_type(self.bias, {"dp": R, "tp": S(0)})

    def forward(self, x):
        return F.linear(CopyToTensorParallel.apply(x, TP), self.weight, self.bias)


class RowParallelLinear(nn.Module):
    def __init__(self, width, out, parts):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(out, width // parts, device="cuda") * 0.02)
        self.bias = nn.Parameter(torch.zeros(out, device="cuda"))
        spmd.assert_type(self.weight, {"dp": R, "tp": S(1)})
        spmd.assert_type(self.bias, {"dp": R, "tp": I})

    def forward(self, x):
        partial = spmd.reinterpret(F.linear(x, self.weight), "tp", src=V, dst=P)
        return ReduceFromTensorParallel.apply(partial, TP) + self.bias


class MLP(nn.Module):
    def __init__(self, width, parts):
        super().__init__()
        self.up = ColumnParallelLinear(width, 4 * width, parts)
        self.down = RowParallelLinear(4 * width, width, parts)

    def forward(self, x):
        return x + self.down(F.gelu(self.up(x), approximate="tanh"))


with spmd.set_current_mesh(mesh):
    model = MLP(32, mesh["tp"].size())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step in range(2):
        x = spmd.assert_type(torch.randn(8, 32, device="cuda"), {"dp": S(0), "tp": I})
        y = spmd.assert_type(torch.randn(8, 32, device="cuda"), {"dp": S(0), "tp": I})
        loss = F.mse_loss(model(x), y, reduction="sum") / (8 * mesh["dp"].size())
        loss = spmd.reinterpret(loss, "dp", src=V, dst=P)
        loss.backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad, group=mesh.get_group("dp"))
        optimizer.step()
        optimizer.zero_grad()
        print(f"step {step} loss {spmd.all_reduce(loss.detach(), 'dp', src=P, dst=R).item():.4f}")
