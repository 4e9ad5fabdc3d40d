"""A transformer block with sequence parallelism: norms and dropout on pieces of the sequence, fused QKV, GQA, RoPE."""

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
tp = mesh["tp"].size()
WIDTH, HEADS, KV_HEADS, HEAD = 64, 8, 4, 8


def parameter(*shape, tp):
    return spmd.assert_type(nn.Parameter(torch.randn(*shape) / math.sqrt(shape[-1])), {"dp": R, "tp": tp})


class RMSNorm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = spmd.assert_type(nn.Parameter(torch.ones(width)), {"dp": R, "tp": I})

    def forward(self, x):
        scale = torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + 1e-6)
        return (x * scale).type_as(x) * spmd.invariant_to_replicate(self.weight, "tp")


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.heads, self.kv_heads = HEADS // tp, KV_HEADS // tp
        self.qkv = parameter((self.heads + 2 * self.kv_heads) * HEAD, WIDTH, tp=S(0))
        self.out = parameter(WIDTH, self.heads * HEAD, tp=S(1))

    def forward(self, x, freqs):
        x = spmd.all_gather(x, "tp", src=S(1), dst=R)
        batch, length, _ = x.shape
        qkv = F.linear(x, self.qkv).view(batch, length, -1, HEAD)
        q, k, v = qkv.split([self.heads, self.kv_heads, self.kv_heads], dim=2)
        q, k = rope(q, freqs), rope(k, freqs)
        k = k.repeat_interleave(self.heads // self.kv_heads, dim=2)
        v = v[:, :, :, None, :].expand(-1, -1, -1, self.heads // self.kv_heads, -1).flatten(2, 3)
        q, k, v = (t.transpose(1, 2) for t in (q, k, v))
        scores = q @ k.transpose(-2, -1) / math.sqrt(HEAD)
        mask = torch.full((length, length), float("-inf"), device=x.device).triu(1)
        attention = F.softmax(scores + mask, dim=-1, dtype=torch.float32).type_as(q)
        out = (attention @ v).transpose(1, 2).contiguous().view(batch, length, -1)
        out = F.linear(out, self.out)
        return spmd.reduce_scatter(out, "tp", src=V, dst=S(1))


def rope(x, freqs):
    pairs = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
    return torch.view_as_real(pairs * freqs[None, :, None, :]).flatten(3).type_as(x)


def rope_freqs(length):
    base = 1.0 / (10000.0 ** (torch.arange(0, HEAD, 2)[: HEAD // 2].float() / HEAD))
    angles = torch.outer(torch.arange(length), base)
    return torch.polar(torch.ones_like(angles), angles)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = RMSNorm(WIDTH), RMSNorm(WIDTH)
        self.attention = Attention()
        self.gate = parameter(128 // tp, WIDTH, tp=S(0))
        self.up = parameter(128 // tp, WIDTH, tp=S(0))
        self.down = parameter(WIDTH, 128 // tp, tp=S(1))
        self.dropout = nn.Dropout(0.1)

    def forward(self, x, freqs):
        x = x + self.dropout(self.attention(self.norm1(x), freqs))
        h = spmd.all_gather(self.norm2(x), "tp", src=S(1), dst=R)
        h = F.silu(F.linear(h, self.gate)) * F.linear(h, self.up)
        h = spmd.linear(h, self.down, out_partial_axes="tp")
        return x + self.dropout(spmd.reduce_scatter(h, "tp", src=P, dst=S(1)))


with spmd.set_current_mesh(mesh):
    blocks = nn.ModuleList(Block() for _ in range(2))
    freqs = rope_freqs(16)
    x = spmd.assert_type(torch.randn(2, 16, WIDTH), {"dp": S(0), "tp": R})
    x = spmd.shard(x, "tp", src=R, dst=S(1))
    for block in blocks:
        x = block(x, freqs)
    loss = (x**2).sum() / x.numel()
    loss = spmd.all_reduce(loss, "tp", src=V, dst=I)
    spmd.reinterpret(loss, "dp", src=V, dst=P).backward()
    for parameter in blocks.parameters():
        dist.all_reduce(parameter.grad, group=mesh.get_group("dp"))
    nn.utils.clip_grad_value_(blocks.parameters(), 1.0)
