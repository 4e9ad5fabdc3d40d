"""A DiT with adaLN-zero modulation, data and tensor parallel: noise per sample, timesteps, labels, sampling."""

import math

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import init_device_mesh

import shardwise as spmd
from shardwise import I, P, R, S, V

dist.init_process_group("nccl")
mesh = init_device_mesh("cuda", (2, 4), mesh_dim_names=("dp", "tp"))
WIDTH, HEADS, STEPS, CLASSES = 32, 4, 100, 10


def timestep_embedding(t, width, period=10_000):
    half = width // 2
    freqs = torch.exp(-math.log(period) * torch.arange(half, dtype=torch.float32, device=t.device) / half)
    angles = t[:, None].float() * freqs[None]
    return torch.cat([angles.cos(), angles.sin()], dim=-1)


def modulate(x, shift, scale):
    return x * (1 + scale.unsqueeze(1)) + shift.unsqueeze(1)


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH // 4)
        self.out = nn.Linear(WIDTH // 4, WIDTH, bias=False)
        spmd.assert_type(list(self.qkv.parameters()), {"dp": R, "tp": S(0)})
        spmd.assert_type(self.out.weight, {"dp": R, "tp": S(1)})

    def forward(self, x):
        x = spmd.convert(x, "tp", src=I, dst=R)
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        o = F.scaled_dot_product_attention(*(z.unsqueeze(1) for z in (q, k, v)))
        return spmd.all_reduce(self.out(o.squeeze(1)), "tp", src=V, dst=I)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1 = nn.LayerNorm(WIDTH, elementwise_affine=False, eps=1e-6)
        self.norm2 = nn.LayerNorm(WIDTH, elementwise_affine=False, eps=1e-6)
        self.attention = Attention()
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 64), nn.GELU(approximate="tanh"), nn.Linear(64, WIDTH))
        self.modulation = nn.Sequential(nn.SiLU(), nn.Linear(WIDTH, 6 * WIDTH))
        for module in (self.mlp, self.modulation):
            spmd.assert_type(list(module.parameters()), {"dp": R, "tp": I})
        nn.init.zeros_(self.modulation[-1].weight)
        nn.init.constant_(self.modulation[-1].bias, 0)

    def forward(self, x, c):
        shift1, scale1, gate1, shift2, scale2, gate2 = self.modulation(c).chunk(6, dim=1)
        x = x + gate1.unsqueeze(1) * self.attention(modulate(self.norm1(x), shift1, scale1))
        return x + gate2.unsqueeze(1) * self.mlp(modulate(self.norm2(x), shift2, scale2))


class DiT(nn.Module):
    def __init__(self):
        super().__init__()
        self.patch = nn.Conv2d(3, WIDTH, kernel_size=2, stride=2)
        self.time = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.SiLU(), nn.Linear(WIDTH, WIDTH))
        self.label = nn.Embedding(CLASSES + 1, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(2))
        self.out = nn.Linear(WIDTH, 12)
        self.register_buffer("position", torch.arange(16).float()[:, None].expand(16, WIDTH) / 16)
        for module in (self.patch, self.time, self.label, self.out):
            spmd.assert_type(list(module.parameters()), {"dp": R, "tp": I})

    def forward(self, x, t, y):
        x = self.patch(x).flatten(2).transpose(1, 2) + self.position
        c = self.time(timestep_embedding(t, WIDTH)) + self.label(y)
        for block in self.blocks:
            x = block(x, c)
        x = self.out(x).unflatten(1, (4, 4)).unflatten(-1, (2, 2, 3))
        return torch.einsum("nhwpqc->nchpwq", x).flatten(4).reshape(x.shape[0], 3, 8, 8)


def noise_like(x):
    """The same noise on all tp ranks, from a generator seeded by the data-parallel rank; a declaration."""
    generator = torch.Generator().manual_seed(mesh.get_local_rank("dp"))
    return spmd.assert_type(torch.randn(x.shape, generator=generator), {"dp": V, "tp": I})


with spmd.set_current_mesh(mesh):
    model = DiT()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    betas = torch.linspace(1e-4, 0.02, STEPS)
    alphas = torch.cumprod(1 - betas, 0)
    images = spmd.assert_type(torch.randn(4, 3, 8, 8), {"dp": S(0), "tp": I})
    labels = spmd.assert_type(torch.randint(CLASSES, (4,)), {"dp": S(0), "tp": I})
    t = spmd.assert_type(torch.randint(STEPS, (4,)), {"dp": S(0), "tp": I})
    noise = noise_like(images)
    a = alphas[t][:, None, None, None]
    noisy = a.sqrt() * images + (1 - a).sqrt() * noise
    loss = F.mse_loss(model(noisy, t, labels), noise)
    (spmd.reinterpret(loss, "dp", src=V, dst=P) / mesh["dp"].size()).backward()
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad, group=mesh.get_group("dp"))
    optimizer.step()

    model.eval()
    with torch.no_grad():
        x = noise_like(images)
        for step in reversed(range(3)):
            now = torch.full((x.shape[0],), step)
            empty = torch.full_like(labels, CLASSES)
            with_label, without = model(torch.cat([x, x]), now.repeat(2), torch.cat([labels, empty])).chunk(2)
            eps = without + 4.0 * (with_label - without)
            x = (x - betas[step] / (1 - alphas[step]).sqrt() * eps) / (1 - betas[step]).sqrt()
            if step > 0:
                x = x + betas[step].sqrt() * noise_like(x)
        print(x.clamp(-1, 1).shape)
