# Delayed scaling in float8 with amax histories that tensor-parallel ranks share. mesh: tp=2
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F

FMT_MAX = 448.0


class FakeFP8(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, scale):
        return (x * scale).clamp(-FMT_MAX, FMT_MAX).to(torch.float8_e4m3fn).to(x.dtype) / scale

    @staticmethod
    def backward(ctx, g):
        return g, None


class Meta:
    def __init__(self, n, window=2):
        self.history = torch.zeros(window, n)
        self.scale = torch.ones(n)

    def update(self):
        amax = self.history.amax(0)
        dist.all_reduce(amax, op=dist.ReduceOp.MAX)
        self.scale = torch.where(amax > 0, FMT_MAX / amax, torch.ones_like(amax))
        self.history = self.history.roll(-1, 0)
        self.history[0].zero_()


class Row(nn.Module):
    def __init__(self, full):
        super().__init__()
        self.weight = nn.Parameter(full.chunk(dist.get_world_size(), 1)[dist.get_rank()].clone())
        self.meta = Meta(2)

    def forward(self, x):
        m = self.meta
        m.history[0] = torch.maximum(
            m.history[0], torch.stack([x.detach().abs().amax(), self.weight.detach().abs().amax()])
        )
        y = FakeFP8.apply(x, m.scale[0]) @ FakeFP8.apply(self.weight, m.scale[1]).T
        return ReduceFwd.apply(y)


class ReduceFwd(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.mark_dirty(x)
        dist.all_reduce(x)
        return x

    @staticmethod
    def backward(ctx, g):
        return g


class IdFwd(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x

    @staticmethod
    def backward(ctx, g):
        dist.all_reduce(g)
        return g


def main():
    dist.init_process_group("gloo")
    ws, rk = dist.get_world_size(), dist.get_rank()
    torch.manual_seed(19)
    inp = nn.Linear(8, 8)
    up = nn.Parameter((torch.randn(16, 8) * torch.linspace(0.1, 1, 16)[:, None]).chunk(ws)[rk].clone())
    row = Row(torch.randn(8, 16) * torch.linspace(0.1, 1, 16))
    opt = torch.optim.SGD([*inp.parameters(), up, *row.parameters()], lr=0.05)
    out = []
    for _ in range(4):
        x, y = torch.randn(8, 8), torch.randn(8, 8)
        h = F.relu(F.linear(IdFwd.apply(inp(x)), up))
        loss = F.mse_loss(row(h), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        row.meta.update()
        out.append(loss.item())
    if rk == 0:
        print(*out)
    dist.destroy_process_group()


main()
