# Tensor and data parallel over groups of new_group, clipping by the norm of the whole model. mesh: dp=2,tp=2
import torch
import torch.distributed as dist
from torch import nn

TP = None
DP = None


def make_groups(tp_size):
    global TP, DP
    rank, world = dist.get_rank(), dist.get_world_size()
    for start in range(0, world, tp_size):
        ranks = list(range(start, start + tp_size))
        group = dist.new_group(ranks)
        TP = group if rank in ranks else TP
    for start in range(tp_size):
        ranks = list(range(start, world, tp_size))
        group = dist.new_group(ranks)
        DP = group if rank in ranks else DP


class Copy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        grad = grad.clone()
        dist.all_reduce(grad, group=TP)
        return grad


class Reduce(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        x = x.clone()
        dist.all_reduce(x, group=TP)
        return x

    @staticmethod
    def backward(ctx, grad):
        return grad


class MLP(nn.Module):
    def __init__(self, dim, hidden):
        super().__init__()
        rank, size = dist.get_rank(TP), dist.get_world_size(TP)
        self.norm = nn.LayerNorm(dim)
        self.up = nn.Parameter((torch.randn(hidden, dim) / dim).chunk(size, 0)[rank].clone())
        self.down = nn.Parameter((torch.randn(dim, hidden) / hidden).chunk(size, 1)[rank].clone())
        self.up.cut = self.down.cut = True

    def forward(self, x):
        return x + Reduce.apply(torch.tanh(Copy.apply(self.norm(x)) @ self.up.T) @ self.down.T)


def clip(parameters, limit):
    cut = sum(p.grad.square().sum() for p in parameters if hasattr(p, "cut"))
    dist.all_reduce(cut, group=TP)
    whole = sum(p.grad.square().sum() for p in parameters if not hasattr(p, "cut"))
    norm = (cut + whole).sqrt()
    for p in parameters:
        p.grad.mul_(torch.clamp(limit / norm, max=1.0))


def main():
    dist.init_process_group("gloo")
    make_groups(min(2, dist.get_world_size()))
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 6), MLP(6, 8), MLP(6, 8), nn.Linear(6, 1))
    parameters = list(model.parameters())
    optimizer = torch.optim.SGD(parameters, lr=0.1)
    x = torch.randn(8, 5)
    for _ in range(2):
        loss = (model(x.chunk(dist.get_world_size(DP))[dist.get_rank(DP)]) - 2).square().mean()
        optimizer.zero_grad()
        loss.backward()
        for p in parameters:
            dist.all_reduce(p.grad, op=dist.ReduceOp.SUM, group=DP)
            p.grad /= dist.get_world_size(DP)
        clip(parameters, 0.1)
        optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
