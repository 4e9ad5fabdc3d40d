# Experts choose their tokens among all; each rank holds some of the experts, tokens are on all ranks. mesh: ep=2
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F


class Sum(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        x = x.clone()
        dist.all_reduce(x)
        return x

    @staticmethod
    def backward(ctx, g):
        return g


class Copy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, g):
        g = g.clone()
        dist.all_reduce(g)
        return g


class ExpertChoice(nn.Module):
    def __init__(self, d=8, h=16, experts=4, capacity=5):
        super().__init__()
        world, rank = dist.get_world_size(), dist.get_rank()
        self.experts, self.capacity = experts, capacity
        self.per, self.first = experts // world, rank * (experts // world)
        self.gate = nn.Linear(d, experts, bias=False)
        g = torch.Generator().manual_seed(31)
        up, down = torch.randn(experts, d, h, generator=g) / d**0.5, torch.randn(experts, h, d, generator=g) / h**0.5
        self.up = nn.Parameter(up[self.first : self.first + self.per].clone())
        self.down = nn.Parameter(down[self.first : self.first + self.per].clone())

    def forward(self, x):
        scores = self.gate(x).softmax(-1)
        scores, x = Copy.apply(scores), Copy.apply(x)
        weight, chosen = scores.T[self.first : self.first + self.per].topk(self.capacity, dim=-1)
        tokens = x[chosen]
        y = torch.bmm(F.gelu(torch.bmm(tokens, self.up)), self.down) * weight.unsqueeze(-1)
        out = torch.zeros_like(x).index_add(0, chosen.flatten(), y.flatten(0, 1))
        return Sum.apply(out)


class Net(nn.Module):
    def __init__(self, d=8):
        super().__init__()
        self.inp = nn.Linear(5, d)
        self.moe = ExpertChoice(d)
        self.norm = nn.LayerNorm(d)
        self.out = nn.Linear(d, 1)

    def forward(self, x):
        h = self.inp(x)
        return self.out(self.norm(h + self.moe(h)))


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    net = Net()
    opt = torch.optim.SGD(net.parameters(), lr=0.05)
    g = torch.Generator().manual_seed(2)
    for _ in range(3):
        x, y = torch.randn(12, 5, generator=g), torch.randn(12, 1, generator=g)
        loss = F.mse_loss(net(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
    print("RESULT", loss.item(), net.inp.weight.abs().sum().item(), net.moe.gate.weight.abs().sum().item())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
