# Tensor parallel as in Megatron: copy to and reduce from the region, columns then rows. mesh: tp=2
import torch
import torch.distributed as dist
from torch import nn


class Copy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x

    @staticmethod
    def backward(ctx, grad):
        grad = grad.contiguous()
        dist.all_reduce(grad)
        return grad


class Reduce(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        x = x.clone()
        dist.all_reduce(x)
        return x

    @staticmethod
    def backward(ctx, grad):
        return grad


class ParallelMLP(nn.Module):
    def __init__(self, dim, hidden):
        super().__init__()
        rank, world = dist.get_rank(), dist.get_world_size()
        up, down = torch.randn(hidden, dim) / dim, torch.randn(dim, hidden) / hidden
        self.up = nn.Parameter(up.chunk(world, 0)[rank].clone())
        self.up_bias = nn.Parameter(torch.randn(hidden).chunk(world)[rank].clone())
        self.down = nn.Parameter(down.chunk(world, 1)[rank].clone())
        self.down_bias = nn.Parameter(torch.randn(dim))

    def forward(self, x):
        h = torch.relu(nn.functional.linear(Copy.apply(x), self.up, self.up_bias))
        return Reduce.apply(nn.functional.linear(h, self.down)) + self.down_bias


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8), ParallelMLP(8, 16), nn.LayerNorm(8), ParallelMLP(8, 16), nn.Linear(8, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    x = torch.randn(8, 6)
    for _ in range(2):
        loss = model(x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
