# WGAN with a gradient penalty: gradients of gradients under DDP. mesh: dp=2
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(5)
G = DDP(nn.Sequential(nn.Linear(4, 16), nn.LeakyReLU(0.2), nn.Linear(16, 6)))
D = DDP(nn.Sequential(nn.Linear(6, 16), nn.LeakyReLU(0.2), nn.Linear(16, 1)))
opt_g = torch.optim.Adam(G.parameters(), lr=1e-3, betas=(0.0, 0.9))
opt_d = torch.optim.Adam(D.parameters(), lr=1e-3, betas=(0.0, 0.9))
real = torch.randn(3, 2, 8, 6)
noise = torch.randn(3, 3, 8, 4)
eps = torch.rand(3, 2, 8, 1)
per_rank = 8 // world
mine = slice(rank * per_rank, (rank + 1) * per_rank)


def gradient_penalty(real, fake, alpha):
    interpolates = (alpha * real + (1 - alpha) * fake).requires_grad_(True)
    scores = D(interpolates)
    gradients = torch.autograd.grad(
        outputs=scores, inputs=interpolates, grad_outputs=torch.ones_like(scores), create_graph=True, retain_graph=True
    )[0]
    return ((gradients.norm(2, dim=1) - 1) ** 2).mean()


for it in range(3):
    for p in D.parameters():
        p.requires_grad_(True)
    for k in range(2):
        opt_d.zero_grad()
        with torch.no_grad():
            fake = G(noise[it, k, mine])
        r = real[it, k, mine]
        loss_d = D(fake).mean() - D(r).mean() + 10 * gradient_penalty(r, fake, eps[it, k, mine])
        loss_d.backward()
        opt_d.step()
    for p in D.parameters():
        p.requires_grad_(False)
    opt_g.zero_grad()
    loss_g = -D(G(noise[it, 2, mine])).mean()
    loss_g.backward()
    opt_g.step()
dist.destroy_process_group()
