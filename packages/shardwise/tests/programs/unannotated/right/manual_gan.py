# A GAN with manual optimisation: one wrapped module, two optimizers that are toggled. mesh: dp=2
import contextlib

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class GAN(nn.Module):
    def __init__(self, latent=4, width=16, data=3):
        super().__init__()
        self.generator = nn.Sequential(nn.Linear(latent, width), nn.LeakyReLU(0.2), nn.Linear(width, data))
        self.discriminator = nn.Sequential(nn.Linear(data, width), nn.LeakyReLU(0.2), nn.Linear(width, 1))
        self.toggled = {}

    def configure_optimizers(self):
        return (
            torch.optim.Adam(self.generator.parameters(), lr=2e-3, betas=(0.5, 0.999)),
            torch.optim.Adam(self.discriminator.parameters(), lr=2e-3, betas=(0.5, 0.999)),
        )

    def toggle_optimizer(self, optimizer):
        self.toggled = {p: p.requires_grad for p in self.parameters()}
        own = {p for group in optimizer.param_groups for p in group["params"]}
        for p in self.parameters():
            p.requires_grad = p in own

    def untoggle_optimizer(self):
        for p, before in self.toggled.items():
            p.requires_grad = before

    def forward(self, what, real, noise):
        return getattr(self, what)(real, noise)

    def generator_loss(self, real, noise):
        return F.softplus(-self.discriminator(self.generator(noise))).mean()

    def discriminator_loss(self, real, noise):
        fake = self.generator(noise).detach()
        return F.softplus(-self.discriminator(real)).mean() + F.softplus(self.discriminator(fake)).mean()


class Strategy:
    def __init__(self, module):
        self.module = module
        self.model = DDP(module, find_unused_parameters=True)

    @contextlib.contextmanager
    def block_backward_sync(self, blocked):
        with self.model.no_sync() if blocked else contextlib.nullcontext():
            yield


def optimise(strategy, optimizer, what, batches):
    module = strategy.module
    module.toggle_optimizer(optimizer)
    total = 0.0
    for at, (real, noise) in enumerate(batches):
        with strategy.block_backward_sync(at < len(batches) - 1):
            loss = strategy.model(what, real, noise) / len(batches)
            loss.backward()
        total = total + loss.detach()
    nn.utils.clip_grad_value_([p for group in optimizer.param_groups for p in group["params"]], 0.5)
    optimizer.step()
    optimizer.zero_grad()
    module.untoggle_optimizer()
    return total


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(7)
    module = GAN()
    strategy = Strategy(module)
    g_opt, d_opt = module.configure_optimizers()
    gen = torch.Generator().manual_seed(1)
    for step in range(3):
        batches = []
        for _ in range(2):
            real, noise = torch.randn(8, 3, generator=gen) * 0.5 + 1.0, torch.randn(8, 4, generator=gen)
            batches.append((real.chunk(world)[rank], noise.chunk(world)[rank]))
        d_loss = optimise(strategy, d_opt, "discriminator_loss", batches)
        g_loss = optimise(strategy, g_opt, "generator_loss", batches)
        logged = torch.stack([d_loss, g_loss])
        dist.all_reduce(logged)
        logged /= world
        if rank == 0:
            print(f"step {step} d {logged[0]:.6f} g {logged[1]:.6f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
