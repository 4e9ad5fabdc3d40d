# ZeRO-3 by hand: weights are flat shards, gathered for a layer's forward, freed after it. mesh: dp=2
import torch
import torch.distributed as dist
from torch import nn


class Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx, shard, shape):
        ctx.shard_size = shard.numel()
        full = shard.new_empty(shard.numel() * dist.get_world_size())
        dist.all_gather_into_tensor(full, shard.contiguous())
        count = torch.Size(shape).numel()
        ctx.padded = full.numel()
        return full[:count].view(shape)

    @staticmethod
    def backward(ctx, grad):
        flat = grad.new_zeros(ctx.padded)
        flat[: grad.numel()] = grad.flatten()
        out = grad.new_empty(ctx.shard_size)
        dist.reduce_scatter_tensor(out, flat)
        return out / dist.get_world_size(), None


class ShardedLinear(nn.Module):
    def __init__(self, d_in, d_out):
        super().__init__()
        full = nn.Linear(d_in, d_out)
        self.shapes = {"weight": (d_out, d_in), "bias": (d_out,)}
        self.weight = self.cut(full.weight)
        self.bias = self.cut(full.bias)

    def cut(self, full):
        rank, world = dist.get_rank(), dist.get_world_size()
        flat = full.detach().flatten()
        size = (flat.numel() + world - 1) // world
        flat = nn.functional.pad(flat, (0, size * world - flat.numel()))
        return nn.Parameter(flat[rank * size : (rank + 1) * size].clone())

    def forward(self, x):
        weight = Gather.apply(self.weight, self.shapes["weight"])
        bias = Gather.apply(self.bias, self.shapes["bias"])
        return nn.functional.linear(x, weight, bias)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = ShardedLinear(5, 9)
        self.b = ShardedLinear(9, 9)
        self.c = ShardedLinear(9, 3)

    def forward(self, x):
        x = torch.relu(self.a(x))
        x = torch.utils.checkpoint.checkpoint(lambda h: torch.relu(self.b(h)), x, use_reentrant=False)
        return self.c(x)


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(31)
    model = Model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for step in range(3):
        torch.manual_seed(step)
        x, y = torch.randn(8, 5), torch.randint(0, 3, (8,))
        loss = nn.functional.cross_entropy(model(x.chunk(world)[rank]), y.chunk(world)[rank])
        loss.backward()
        squares = torch.stack([p.grad.square().sum() for p in model.parameters()]).sum()
        dist.all_reduce(squares)
        scale = (0.25 / (squares.sqrt() + 1e-6)).clamp(max=1.0)
        for p in model.parameters():
            p.grad.mul_(scale)
        optimizer.step()
        optimizer.zero_grad()
        mean = loss.detach() / world
        dist.all_reduce(mean)
        if rank == 0:
            print(f"{step:3d} {mean.item():.4f} {squares.sqrt().item():.3f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
