# LAMB on flat shards of the parameters: trust ratios need norms over all shards. mesh: dp=2
import torch
import torch.distributed as dist
import torch.nn as nn


class ShardedLAMB:
    def __init__(self, params, lr=0.01, betas=(0.9, 0.99), eps=1e-6, weight_decay=0.01):
        self.params = list(params)
        self.lr, self.betas, self.eps, self.wd = lr, betas, eps, weight_decay
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        self.sizes = [p.numel() for p in self.params]
        total = sum(self.sizes)
        self.pad = (-total) % self.world
        self.shard_size = (total + self.pad) // self.world
        flat = torch.cat([p.detach().flatten() for p in self.params] + [torch.zeros(self.pad)])
        self.shard = flat[self.rank * self.shard_size : (self.rank + 1) * self.shard_size].clone()
        self.m = torch.zeros_like(self.shard)
        self.v = torch.zeros_like(self.shard)
        owner = torch.cat(
            [torch.full((s,), i) for i, s in enumerate(self.sizes)] + [torch.full((self.pad,), len(self.sizes))]
        )
        self.segment = owner[self.rank * self.shard_size : (self.rank + 1) * self.shard_size].long()
        self.t = 0

    def segment_norms(self, x):
        sq = torch.zeros(len(self.sizes) + 1).index_add_(0, self.segment, x * x)
        dist.all_reduce(sq)
        return sq.sqrt()

    @torch.no_grad()
    def step(self):
        self.t += 1
        flat_grad = torch.cat([p.grad.flatten() for p in self.params] + [torch.zeros(self.pad)])
        g = torch.empty(self.shard_size)
        dist.reduce_scatter_tensor(g, flat_grad, op=dist.ReduceOp.SUM)
        g /= self.world
        norm = g.pow(2).sum()
        dist.all_reduce(norm)
        g.mul_(torch.clamp(1.0 / (norm.sqrt() + 1e-6), max=1.0))
        b1, b2 = self.betas
        self.m.mul_(b1).add_(g, alpha=1 - b1)
        self.v.mul_(b2).addcmul_(g, g, value=1 - b2)
        update = (self.m / (1 - b1**self.t)) / ((self.v / (1 - b2**self.t)).sqrt() + self.eps) + self.wd * self.shard
        w_norm, u_norm = self.segment_norms(self.shard), self.segment_norms(update)
        ratio = torch.where((w_norm > 0) & (u_norm > 0), w_norm / u_norm, torch.ones_like(w_norm))
        self.shard.sub_(self.lr * ratio[self.segment] * update)
        full = torch.empty(self.shard_size * self.world)
        dist.all_gather_into_tensor(full, self.shard)
        offset = 0
        for p, s in zip(self.params, self.sizes):
            p.copy_(full[offset : offset + s].view_as(p))
            offset += s

    def zero_grad(self):
        for p in self.params:
            p.grad = None


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(3)
    model = nn.Sequential(nn.Linear(9, 13), nn.Tanh(), nn.LayerNorm(13), nn.Linear(13, 5))
    opt = ShardedLAMB(model.parameters())
    x, y = torch.randn(4, 8, 9), torch.randint(0, 5, (4, 8))
    for i in range(4):
        n = 8 // world
        mine = slice(rank * n, rank * n + n)
        loss = nn.functional.cross_entropy(model(x[i, mine]), y[i, mine])
        opt.zero_grad()
        loss.backward()
        opt.step()
    dist.destroy_process_group()


main()
