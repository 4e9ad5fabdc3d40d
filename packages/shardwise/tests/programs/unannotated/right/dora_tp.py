# DoRA on tensor-parallel linears: the norm of a row needs all its columns. mesh: tp=2

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F


class _Sum(torch.autograd.Function):
    """Sum forward, identity backward."""

    @staticmethod
    def forward(ctx, x):
        x = x.clone()
        dist.all_reduce(x)
        return x

    @staticmethod
    def backward(ctx, g):
        return g


class _Same(torch.autograd.Function):
    """Identity forward, sum backward."""

    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, g):
        g = g.clone()
        dist.all_reduce(g)
        return g


def piece(t, dim):
    return t.chunk(dist.get_world_size(), dim)[dist.get_rank()].clone()


class DoRA(nn.Module):
    """kind 'column': output cut; kind 'row': input cut. The magnitude belongs to an output row."""

    def __init__(self, inp, out, r, kind):
        super().__init__()
        w = torch.randn(out, inp) / inp**0.5
        a, b = torch.randn(r, inp) * 0.1, torch.randn(out, r) * 0.1
        m = w.norm(dim=1)
        self.kind = kind
        cut = 0 if kind == "column" else 1
        self.register_buffer("weight", piece(w, cut))
        self.a = nn.Parameter(a if kind == "column" else piece(a, 1))
        self.b = nn.Parameter(piece(b, 0) if kind == "column" else b)
        self.m = nn.Parameter(piece(m, 0) if kind == "column" else m)

    def forward(self, x):
        if self.kind == "column":
            x = _Same.apply(x)
            v = self.weight + self.b @ _Same.apply(self.a)
            return F.linear(x, v) * (self.m / v.norm(dim=1))
        v = self.weight + _Same.apply(self.b) @ self.a
        square = _Sum.apply(v.square().sum(1))
        y = _Sum.apply(F.linear(x, v))
        return y * (self.m / square.sqrt())


class MLP(nn.Module):
    def __init__(self, d, h):
        super().__init__()
        self.up, self.down = DoRA(d, h, 2, "column"), DoRA(h, d, 2, "row")

    def forward(self, x):
        return x + self.down(F.silu(self.up(x)))


def fit(model, opt, steps):
    g = torch.Generator().manual_seed(0)
    for _ in range(steps):
        x = torch.randn(6, 8, generator=g)
        loss = (model(x) - x.roll(1, 1)).pow(2).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
    return loss.item()


if __name__ == "__main__":
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = nn.Sequential(MLP(8, 12), MLP(8, 12))
    loss = fit(model, torch.optim.SGD(model.parameters(), lr=0.5), 4)
    whole = sum(p.detach().abs().sum() for n, p in model.named_parameters() if n.endswith(("up.a", "down.b", "down.m")))
    if dist.get_rank() == 0:
        print("RESULT", loss, whole.item())
    dist.destroy_process_group()
