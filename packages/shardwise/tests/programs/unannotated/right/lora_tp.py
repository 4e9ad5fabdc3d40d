# LoRA beside a frozen split MLP: the low rank is whole, one side of each adapter is split. mesh: tp=2
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F


class ToRanks(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, g):
        g = g.contiguous()
        dist.all_reduce(g)
        return g


class FromRanks(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        x = x.contiguous()
        dist.all_reduce(x)
        return x

    @staticmethod
    def backward(ctx, g):
        return g


def part(full, dim):
    return full.chunk(dist.get_world_size(), dim)[dist.get_rank()].clone()


class LoraMLP(nn.Module):
    def __init__(self, d=8, h=16, r=3, alpha=6.0):
        super().__init__()
        g = torch.Generator().manual_seed(13)
        self.scale = alpha / r
        self.register_buffer("up", part(torch.randn(h, d, generator=g) / d**0.5, 0))
        self.register_buffer("down", part(torch.randn(d, h, generator=g) / h**0.5, 1))
        self.up_a = nn.Parameter(torch.randn(r, d, generator=g) * 0.1)
        self.up_b = nn.Parameter(part(torch.randn(h, r, generator=g) * 0.1, 0))
        self.down_a = nn.Parameter(part(torch.randn(r, h, generator=g) * 0.1, 1))
        self.down_b = nn.Parameter(torch.randn(d, r, generator=g) * 0.1)

    def forward(self, x):
        inner = ToRanks.apply(x @ self.up_a.T)
        x = ToRanks.apply(x)
        h = F.silu(x @ self.up.T + self.scale * (inner @ self.up_b.T))
        low = FromRanks.apply(h @ self.down_a.T)
        return FromRanks.apply(h @ self.down.T) + self.scale * (low @ self.down_b.T)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.inp, self.out = nn.Linear(5, 8), nn.Linear(8, 2)
        for p in self.inp.parameters():
            p.requires_grad_(False)
        self.blocks = nn.ModuleList(LoraMLP() for _ in range(2))
        self.norms = nn.ModuleList(nn.LayerNorm(8) for _ in range(2))

    def forward(self, x):
        h = self.inp(x)
        for block, norm in zip(self.blocks, self.norms):
            h = h + block(norm(h))
        return self.out(h)


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = Model()
    opt = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-2)
    g = torch.Generator().manual_seed(5)
    for _ in range(3):
        x, y = torch.randn(6, 5, generator=g), torch.randint(0, 2, (6,), generator=g)
        loss = F.cross_entropy(model(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
    print("RESULT", loss.item(), model.blocks[0].up_a.abs().sum().item(), model.out.weight.abs().sum().item())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
