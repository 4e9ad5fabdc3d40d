# Replicated inputs, split MLP, replicated gradients are averaged in two loops. mesh: tp=2
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F


class Copy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, g):
        g = g.clone()
        dist.all_reduce(g)
        return g


class Reduce(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        x = x.clone()
        dist.all_reduce(x)
        return x

    @staticmethod
    def backward(ctx, g):
        return g


class Net(nn.Module):
    def __init__(self, d=8, h=16):
        super().__init__()
        n, at = dist.get_world_size(), dist.get_rank()
        self.norm, self.head = nn.LayerNorm(d), nn.Linear(d, 3)
        self.up = nn.Parameter((torch.randn(h, d) / 3).chunk(n)[at].clone())
        self.down = nn.Parameter((torch.randn(d, h) / 4).chunk(n, 1)[at].clone())

    def forward(self, x):
        h = Copy.apply(self.norm(x))
        return self.head(x + Reduce.apply(F.gelu(h @ self.up.T) @ self.down.T))


def main():
    dist.init_process_group("gloo")
    world = dist.get_world_size()
    torch.manual_seed(0)
    net = Net()
    whole = [p for name, p in net.named_parameters() if name not in ("up", "down")]
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    g = torch.Generator().manual_seed(7)
    for _ in range(3):
        x, y = torch.randn(8, 8, generator=g), torch.randint(0, 3, (8,), generator=g)
        loss = F.cross_entropy(net(x), y)
        opt.zero_grad()
        loss.backward()
        for p in whole:  # keeps the copies from drifting apart
            dist.all_reduce(p.grad)
        for p in whole:
            p.grad.div_(world)
        opt.step()
    print("RESULT", loss.item(), net.norm.weight.sum().item())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
