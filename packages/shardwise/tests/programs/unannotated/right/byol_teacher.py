# BYOL: the target is a deep copy that follows, noise is seeded by the number of the view. mesh: dp=2
import copy

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP


class Encoder(nn.Module):
    def __init__(self, d=10, h=16, o=6):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(d, h), nn.LayerNorm(h), nn.ReLU())
        self.proj = nn.Linear(h, o)

    def forward(self, x):
        return self.proj(self.body(x))


class Online(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder, self.predictor = Encoder(), nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 6))

    def forward(self, x):
        return self.predictor(self.encoder(x))


def regression(p, z):
    return 2 - 2 * F.cosine_similarity(p, z, dim=-1).mean()


def jitter(x, seed, scale=0.1):
    g = torch.Generator().manual_seed(seed)
    return x + scale * torch.randn(x.shape, generator=g)


class Learner:
    def __init__(self, tau=0.9):
        self.rank, self.world, self.tau = dist.get_rank(), dist.get_world_size(), tau
        online = Online()
        self.target = copy.deepcopy(online.encoder)
        for p in self.target.parameters():
            p.requires_grad = False
        self.online = DDP(online)
        self.opt = torch.optim.AdamW(self.online.parameters(), lr=3e-3, weight_decay=0.01)

    @torch.no_grad()
    def follow(self):
        for slow, fast in zip(self.target.parameters(), self.online.module.encoder.parameters()):
            slow.mul_(self.tau).add_(fast, alpha=1 - self.tau)

    def step(self, x, n):
        a, b = (v.chunk(self.world)[self.rank] for v in (jitter(x, 2 * n), jitter(x, 2 * n + 1)))
        with torch.no_grad():
            za, zb = self.target(a), self.target(b)
        p = self.online(torch.cat([a, b]))
        pa, pb = p.chunk(2)
        loss = regression(pa, zb) + regression(pb, za)
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()
        self.follow()
        return loss.detach()


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    learner = Learner()
    g = torch.Generator().manual_seed(77)
    for n in range(4):
        loss = learner.step(torch.randn(16, 10, generator=g), n)
    dist.all_reduce(loss)
    loss /= learner.world
    if learner.rank == 0:
        print("RESULT", loss.item(), learner.target.proj.weight.abs().sum().item())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
