# Sequence parallel by hand: norms on pieces of the sequence, gathered for the split MLP, scattered after it. mesh: tp=2
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F


def gathered(x):
    parts = [torch.empty_like(x) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, x.contiguous())
    return torch.cat(parts)


def reduce_scattered(x):
    out = x.new_empty(x.shape[0] // dist.get_world_size(), *x.shape[1:])
    dist.reduce_scatter_tensor(out, x.contiguous())
    return out


class Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return gathered(x)

    @staticmethod
    def backward(ctx, g):
        return reduce_scattered(g)


class ReduceScatter(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return reduce_scattered(x)

    @staticmethod
    def backward(ctx, g):
        return gathered(g)


class Block(nn.Module):
    def __init__(self, d=8, h=16):
        super().__init__()
        n, at = dist.get_world_size(), dist.get_rank()
        self.scale, self.shift = nn.Parameter(torch.ones(d)), nn.Parameter(torch.zeros(d))
        self.up = nn.Parameter((torch.randn(h, d) / d**0.5).chunk(n)[at].clone())
        self.down = nn.Parameter((torch.randn(d, h) / h**0.5).chunk(n, 1)[at].clone())
        self.bias = nn.Parameter(torch.zeros(d))

    def forward(self, x):
        mean, var = x.mean(-1, keepdim=True), x.var(-1, keepdim=True, unbiased=False)
        h = (x - mean) / (var + 1e-5).sqrt() * self.scale + self.shift
        h = F.gelu(Gather.apply(h) @ self.up.T) @ self.down.T
        return x + ReduceScatter.apply(h) + self.bias


class Net(nn.Module):
    def __init__(self, d=8):
        super().__init__()
        self.inp, self.out = nn.Linear(4, d), nn.Linear(d, 3)
        self.blocks = nn.ModuleList(Block(d) for _ in range(2))

    def forward(self, x):
        h = self.inp(x)
        for block in self.blocks:
            h = block(h)
        return self.out(h)


SPLIT = ("up", "down")


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    net = Net()
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    g = torch.Generator().manual_seed(7)
    for _ in range(3):
        x, y = torch.randn(8, 2, 4, generator=g), torch.randint(0, 3, (8, 2), generator=g)
        x, y = x.chunk(world)[rank], y.chunk(world)[rank]
        loss = F.cross_entropy(net(x).flatten(0, 1), y.flatten(), reduction="sum") / 16
        opt.zero_grad()
        loss.backward()
        for name, p in net.named_parameters():
            if name.rsplit(".", 1)[-1] not in SPLIT:
                dist.all_reduce(p.grad)
        opt.step()
    total = loss.detach().clone()
    dist.all_reduce(total)
    print("RESULT", total.item(), net.inp.weight.abs().sum().item(), net.blocks[1].scale.sum().item())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
