# HSDP by hand: flat shards within a group, gradients reduced over it and averaged between groups. mesh: dp=2,fs=2
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F


class Layer(nn.Module):
    """A linear layer whose weight is gathered where it is used."""

    def __init__(self, i, o, groups):
        super().__init__()
        self.i, self.o, (self.replicas, self.shards) = i, o, groups
        n, at = dist.get_world_size(self.shards), dist.get_rank(self.shards)
        whole = torch.randn(o, i) / i**0.5
        self.weight = nn.Parameter(whole.flatten().chunk(n)[at].clone())
        self.bias = nn.Parameter(torch.zeros(o))

    def forward(self, x):
        return F.linear(x, Gather.apply(self.weight, self.replicas, self.shards).view(self.o, self.i), self.bias)


class Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx, part, replicas, shards):
        ctx.groups = replicas, shards
        whole = part.new_empty(part.numel() * dist.get_world_size(shards))
        dist.all_gather_into_tensor(whole, part, group=shards)
        return whole

    @staticmethod
    def backward(ctx, g):
        replicas, shards = ctx.groups
        part = g.new_empty(g.numel() // dist.get_world_size(shards))
        dist.reduce_scatter_tensor(part, g.contiguous(), group=shards)
        dist.all_reduce(part, group=replicas)
        return part / dist.get_world_size(), None, None


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    inner = max(world // 2, 1)
    for start in range(0, world, inner):
        group = dist.new_group(list(range(start, start + inner)))
        if start <= rank < start + inner:
            shards = group
    for offset in range(inner):
        group = dist.new_group(list(range(offset, world, inner)))
        if rank % inner == offset:
            replicas = group
    torch.manual_seed(0)
    net = nn.Sequential(Layer(6, 16, (replicas, shards)), nn.Tanh(), Layer(16, 4, (replicas, shards)))
    opt = torch.optim.AdamW(net.parameters(), lr=1e-2)
    g = torch.Generator().manual_seed(9)
    for _ in range(3):
        x, y = torch.randn(8, 6, generator=g), torch.randint(0, 4, (8,), generator=g)
        x, y = x.chunk(world)[rank], y.chunk(world)[rank]
        loss = F.cross_entropy(net(x), y)
        opt.zero_grad()
        loss.backward()
        for name, p in net.named_parameters():
            if name.endswith("bias"):
                dist.all_reduce(p.grad)
                p.grad /= world
        opt.step()
    total = loss.detach().clone()
    dist.all_reduce(total)
    print("RESULT", (total / world).item(), net[0].bias.abs().sum().item())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
