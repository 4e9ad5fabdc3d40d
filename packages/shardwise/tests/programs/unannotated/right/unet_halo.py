# Images cut into bands of rows: convolutions take a row of each neighbour, a norm has the statistics of all. mesh: sp=2
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.nn.functional import all_reduce


class Halo(torch.autograd.Function):
    @staticmethod
    def exchange(first, last):
        """Sends rows up and down; returns those of the rank above and of the one below."""
        rank, world = dist.get_rank(), dist.get_world_size()
        above, below = torch.zeros_like(first), torch.zeros_like(last)
        reqs = []
        if rank > 0:
            reqs += [dist.isend(first.contiguous(), rank - 1), dist.irecv(above, rank - 1)]
        if rank < world - 1:
            reqs += [dist.isend(last.contiguous(), rank + 1), dist.irecv(below, rank + 1)]
        for r in reqs:
            r.wait()
        return above, below

    @staticmethod
    def forward(ctx, x):
        above, below = Halo.exchange(x[:, :, :1], x[:, :, -1:])
        return torch.cat([above, x, below], dim=2)

    @staticmethod
    def backward(ctx, grad):
        above, below = Halo.exchange(grad[:, :, :1], grad[:, :, -1:])
        dx = grad[:, :, 1:-1].clone()
        dx[:, :, :1] += above
        dx[:, :, -1:] += below
        return dx


class HaloConv(nn.Conv2d):
    def forward(self, x):
        return F.conv2d(Halo.apply(x), self.weight, self.bias, padding=(0, 1))


class BandNorm(nn.Module):
    def __init__(self, groups, channels):
        super().__init__()
        self.groups = groups
        self.weight, self.bias = nn.Parameter(torch.ones(channels)), nn.Parameter(torch.zeros(channels))

    def forward(self, x):
        g = x.view(len(x), self.groups, -1)
        stats = torch.stack([g.sum(-1), g.square().sum(-1)])
        stats = all_reduce(stats) / (g.shape[-1] * dist.get_world_size())
        mean, var = stats[0], stats[1] - stats[0].square()
        g = (g - mean[..., None]) * (var[..., None] + 1e-5).rsqrt()
        return g.view_as(x) * self.weight[:, None, None] + self.bias[:, None, None]


class TinyUNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.inc = HaloConv(1, 4, 3)
        self.norm = BandNorm(2, 4)
        self.down = HaloConv(4, 8, 3)
        self.mid = HaloConv(8, 8, 3)
        self.up = nn.ConvTranspose2d(8, 4, 2, stride=2)
        self.outc = HaloConv(8, 1, 3)

    def forward(self, x):
        a = F.silu(self.norm(self.inc(x)))
        d = F.silu(self.down(F.avg_pool2d(a, 2)))
        d = d + F.silu(self.mid(d))
        return self.outc(torch.cat([a, self.up(d)], 1))


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    net = TinyUNet()
    opt = torch.optim.Adam(net.parameters(), lr=5e-3)
    size = 16
    band = slice(rank * size // world, (rank + 1) * size // world)
    for step in range(3):
        gen = torch.Generator().manual_seed(step)
        image = torch.randn(2, 1, size, size, generator=gen)
        target = F.avg_pool2d(image, 3, 1, 1)
        loss = (net(image[:, :, band]) - target[:, :, band]).pow(2).sum() / target.numel()
        opt.zero_grad()
        loss.backward()
        for p in net.parameters():
            dist.all_reduce(p.grad)
        opt.step()
        total = loss.detach().clone()
        dist.all_reduce(total)
        if rank == 0:
            print(step, f"{total.item():.6f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
