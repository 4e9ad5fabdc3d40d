# Tensor parallel with sequence parallel: gather before the columns, reduce-scatter after the rows. mesh: tp=2
import torch
import torch.distributed as dist
from torch import nn


def gather(x):
    out = x.new_empty(x.shape[0] * dist.get_world_size(), *x.shape[1:])
    dist.all_gather_into_tensor(out, x.contiguous())
    return out


def reduce_scatter(x):
    out = x.new_empty(x.shape[0] // dist.get_world_size(), *x.shape[1:])
    dist.reduce_scatter_tensor(out, x.contiguous())
    return out


class Gather(torch.autograd.Function):
    forward = staticmethod(lambda ctx, x: gather(x))
    backward = staticmethod(lambda ctx, grad: reduce_scatter(grad))


class ReduceScatter(torch.autograd.Function):
    forward = staticmethod(lambda ctx, x: reduce_scatter(x))
    backward = staticmethod(lambda ctx, grad: gather(grad))


class Block(nn.Module):
    def __init__(self, dim, hidden):
        super().__init__()
        rank, world = dist.get_rank(), dist.get_world_size()
        self.norm = nn.LayerNorm(dim)
        self.up = nn.Parameter((torch.randn(hidden, dim) / dim).chunk(world, 0)[rank].clone())
        self.down = nn.Parameter((torch.randn(dim, hidden) / hidden).chunk(world, 1)[rank].clone())
        self.bias = nn.Parameter(torch.randn(dim))

    def forward(self, x):
        h = torch.relu(Gather.apply(self.norm(x)) @ self.up.T)
        return x + ReduceScatter.apply(h @ self.down.T) + self.bias


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    model = nn.Sequential(Block(6, 8), Block(6, 8))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x = torch.randn(8, 6)  # sequence first
    for _ in range(2):
        loss = model(x.chunk(world)[rank]).square().sum() / x.shape[0]
        optimizer.zero_grad()
        loss.backward()
        for name, parameter in model.named_parameters():
            if "norm" in name or "bias" in name:  # computed on a part of the sequence
                dist.all_reduce(parameter.grad)
        optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
