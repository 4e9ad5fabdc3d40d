# muP under Megatron tensor parallelism: multipliers and learning rates by the global width. mesh: tp=2
import math

import torch
import torch.distributed as dist
from torch import nn


class _CopyToTP(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x

    @staticmethod
    def backward(ctx, g):
        g = g.contiguous()
        dist.all_reduce(g)
        return g


class _ReduceFromTP(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        x = x.clone()
        dist.all_reduce(x)
        return x

    @staticmethod
    def backward(ctx, g):
        return g


class Col(nn.Module):
    def __init__(self, d_in, d_out, gen):
        super().__init__()
        ws, rk = dist.get_world_size(), dist.get_rank()
        full = torch.empty(d_out, d_in).normal_(0, 1 / math.sqrt(d_in), generator=gen)
        self.weight = nn.Parameter(full.chunk(ws, 0)[rk].clone())
        self.bias = nn.Parameter(torch.zeros(d_out // ws))
        self.fan_in = d_in

    def forward(self, x):
        return nn.functional.linear(_CopyToTP.apply(x), self.weight, self.bias)


class Row(nn.Module):
    def __init__(self, d_in, d_out, gen):
        super().__init__()
        ws, rk = dist.get_world_size(), dist.get_rank()
        full = torch.empty(d_out, d_in).normal_(0, 1 / math.sqrt(d_in), generator=gen)
        self.weight = nn.Parameter(full.chunk(ws, 1)[rk].clone())
        self.bias = nn.Parameter(torch.zeros(d_out))
        self.fan_in = d_in

    def forward(self, x):
        return _ReduceFromTP.apply(nn.functional.linear(x, self.weight)) + self.bias


class Net(nn.Module):
    BASE = 8

    def __init__(self, d, hidden, out):
        super().__init__()
        gen = torch.Generator().manual_seed(3)
        self.norm = nn.LayerNorm(d)
        self.up, self.down = Col(d, hidden, gen), Row(hidden, d, gen)
        self.head = nn.Linear(d, out)
        with torch.no_grad():
            self.head.weight.normal_(0, 0.3, generator=gen)
            self.head.bias.zero_()
        self.mult = self.BASE / hidden

    def forward(self, x):
        return self.head(x + self.down(torch.relu(self.up(self.norm(x))))) * self.mult

    def groups(self, lr):
        out = []
        for m in self.modules():
            if isinstance(m, (Col, Row)):
                out.append({"params": [m.weight], "lr": lr * self.BASE / m.fan_in})
                out.append({"params": [m.bias], "lr": lr})
            elif isinstance(m, (nn.Linear, nn.LayerNorm)):
                out.append({"params": list(m.parameters()), "lr": lr})
        return out


dist.init_process_group("gloo")
net = Net(8, 32, 5)
opt = torch.optim.Adam(net.groups(0.05))
data = torch.Generator().manual_seed(11)
losses = []
for _ in range(3):
    x = torch.randn(6, 8, generator=data)
    y = torch.randint(0, 5, (6,), generator=data)
    loss = nn.functional.cross_entropy(net(x), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    losses.append(loss.item())
if dist.get_rank() == 0:
    print(*losses)
dist.destroy_process_group()
