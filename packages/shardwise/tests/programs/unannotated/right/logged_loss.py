# A VAE whose loss is summed in place for the log before backward. mesh: dp=2
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP


def reduce_loss(loss):
    with torch.no_grad():
        logged = loss.detach()
        dist.all_reduce(logged)
    return logged.item() / dist.get_world_size()


class VAE(nn.Module):
    def __init__(self, d=10, z=3):
        super().__init__()
        self.enc = nn.Sequential(nn.Linear(d, 16), nn.ELU(), nn.Linear(16, 2 * z))
        self.dec = nn.Sequential(nn.Linear(z, 16), nn.ELU(), nn.Linear(16, d))

    def forward(self, x, eps):
        mu, logvar = self.enc(x).chunk(2, 1)
        z = mu + eps * (0.5 * logvar).exp()
        rec = self.dec(z)
        kl = -0.5 * (1 + logvar - mu**2 - logvar.exp()).sum(1)
        return rec, kl


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(14)
    model = DDP(VAE())
    opt = torch.optim.RAdam(model.parameters(), lr=3e-3)
    data = torch.randn(4, 8, 10)
    for step in range(4):
        eps = torch.randn(8, 3)
        x, e = data[step, rank::world], eps[rank::world]
        beta = min(1.0, (step + 1) / 4)
        rec, kl = model(x, e)
        loss = ((rec - x) ** 2).sum(1).mean() + beta * kl.mean()
        opt.zero_grad()
        logged = reduce_loss(loss)
        loss.backward()
        opt.step()
        if rank == 0:
            print(f"{step} {logged:.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
