# A small diffusion model: noise by the global batch, min-SNR weights, FSDP2 and an EMA of its shards. mesh: dp=2
import copy
import math

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard


def timestep_embedding(t, dim):
    freqs = torch.exp(-math.log(1000) * torch.arange(dim // 2) / (dim // 2))
    args = t[:, None].float() * freqs[None]
    return torch.cat([torch.cos(args), torch.sin(args)], dim=-1)


class ResBlock(nn.Module):
    def __init__(self, ch, emb):
        super().__init__()
        self.norm1, self.norm2 = nn.GroupNorm(2, ch), nn.GroupNorm(2, ch)
        self.conv1, self.conv2 = nn.Conv2d(ch, ch, 3, padding=1), nn.Conv2d(ch, ch, 3, padding=1)
        self.emb = nn.Linear(emb, 2 * ch)

    def forward(self, x, emb):
        scale, shift = self.emb(F.silu(emb))[:, :, None, None].chunk(2, dim=1)
        h = self.conv1(F.silu(self.norm1(x)))
        h = self.norm2(h) * (1 + scale) + shift
        return x + self.conv2(F.silu(h))


class UNet(nn.Module):
    def __init__(self, ch=4, emb=8):
        super().__init__()
        self.emb_dim = emb
        self.stem = nn.Conv2d(1, ch, 3, padding=1)
        self.time = nn.Sequential(nn.Linear(emb, emb), nn.SiLU(), nn.Linear(emb, emb))
        self.down, self.mid, self.up = ResBlock(ch, emb), ResBlock(ch, emb), ResBlock(ch, emb)
        self.merge = nn.Conv2d(2 * ch, ch, 1)
        self.out = nn.Conv2d(ch, 1, 3, padding=1)

    def forward(self, x, t):
        emb = self.time(timestep_embedding(t, self.emb_dim))
        skip = self.down(self.stem(x), emb)
        h = self.mid(F.avg_pool2d(skip, 2), emb)
        h = F.interpolate(h, scale_factor=2, mode="nearest")
        return self.out(self.up(self.merge(torch.cat([h, skip], 1)), emb))


class Diffusion:
    def __init__(self, steps=50):
        betas = torch.linspace(1e-3, 0.1, steps)
        self.alphas_bar = torch.cumprod(1 - betas, 0)
        snr = self.alphas_bar / (1 - self.alphas_bar)
        self.weights = torch.minimum(snr, torch.tensor(5.0)) / snr

    def loss(self, model, x0, t, noise):
        a = self.alphas_bar[t][:, None, None, None]
        xt = a.sqrt() * x0 + (1 - a).sqrt() * noise
        per_sample = (model(xt, t) - noise).pow(2).mean(dim=(1, 2, 3))
        return (self.weights[t] * per_sample).mean()


def main():
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (dist.get_world_size(),), mesh_dim_names=("dp",))
    rank, world = mesh.get_local_rank(), mesh.size()
    torch.manual_seed(5)
    model = UNet()
    ema = copy.deepcopy(model).requires_grad_(False)
    for net in (model, ema):
        for block in (net.down, net.mid, net.up):
            fully_shard(block, mesh=mesh)
        fully_shard(net, mesh=mesh)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    warmup = torch.optim.lr_scheduler.LinearLR(optimizer, 0.5, total_iters=2)
    diffusion = Diffusion()
    gen = torch.Generator().manual_seed(99)
    for step in range(3):
        x0 = torch.randn(4, 1, 8, 8, generator=gen)
        t = torch.randint(50, (4,), generator=gen)
        noise = torch.randn(4, 1, 8, 8, generator=gen)
        x0, t, noise = (v.tensor_split(world)[rank] for v in (x0, t, noise))
        optimizer.zero_grad(set_to_none=True)
        loss = diffusion.loss(model, x0, t, noise)
        loss.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        warmup.step()
        with torch.no_grad():
            torch._foreach_lerp_(list(ema.parameters()), list(model.parameters()), 0.05)
        shown = loss.detach()
        dist.all_reduce(shown, group=mesh.get_group())
        norm = norm.full_tensor().item()
        if rank == 0:
            print(f"{step:3d} loss {shown.item() / world:.6f} grad {norm:.6f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
