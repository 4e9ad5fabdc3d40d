# Causal attention over a sequence that is cut over the ranks: keys and values are gathered. mesh: cp=2
import torch
import torch.distributed as dist
from torch import nn


class GatherSequence(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        parts = [torch.empty_like(x) for _ in range(dist.get_world_size())]
        dist.all_gather(parts, x.contiguous())
        return torch.cat(parts, 1)

    @staticmethod
    def backward(ctx, grad):
        total = grad.contiguous()
        dist.all_reduce(total)
        return total.chunk(dist.get_world_size(), 1)[dist.get_rank()]


class Attention(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.qkv = nn.Linear(dim, 3 * dim)
        self.out = nn.Linear(dim, dim)

    def forward(self, x):
        length = x.shape[1]
        start = dist.get_rank() * length
        q, k, v = self.qkv(x).chunk(3, -1)
        k, v = GatherSequence.apply(k), GatherSequence.apply(v)
        scores = q @ k.transpose(1, 2) / x.shape[-1] ** 0.5
        rows = torch.arange(start, start + length)[:, None]
        scores = scores.masked_fill(torch.arange(k.shape[1])[None] > rows, float("-inf"))
        return x + self.out(scores.softmax(-1) @ v)


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    model = nn.Sequential(Attention(6), Attention(6), nn.Linear(6, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    x = torch.randn(2, 8, 6)
    for _ in range(2):
        loss = model(x.chunk(world, 1)[rank]).square().mean()
        optimizer.zero_grad()
        loss.backward()
        for p in model.parameters():
            dist.all_reduce(p.grad)
            p.grad /= world
        optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
