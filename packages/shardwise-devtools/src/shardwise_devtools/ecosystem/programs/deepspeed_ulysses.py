"""Attention under DeepSpeed Ulysses: a rank has a piece of the sequence, and inside of attention some of the heads."""

import os

os.environ.setdefault("DS_ACCELERATOR", "cpu")
import deepspeed
import torch
import torch.distributed as dist
from deepspeed.sequence.layer import DistributedAttention
from torch import nn
from torch.nn.functional import scaled_dot_product_attention

HEADS, WIDTH = 4, 8


class LocalAttention(nn.Module):
    """Attention over a whole sequence, of ``[batch, sequence, heads, width]``."""

    def forward(self, query, key, value):
        query, key, value = (x.transpose(1, 2) for x in (query, key, value))
        return scaled_dot_product_attention(query, key, value, is_causal=True).transpose(1, 2)


class Block(nn.Module):
    """A layer of attention whose input is a piece of the sequence."""

    def __init__(self, group):
        super().__init__()
        self.norm = nn.LayerNorm(HEADS * WIDTH)
        self.qkv = nn.Linear(HEADS * WIDTH, 3 * HEADS * WIDTH)
        self.out = nn.Linear(HEADS * WIDTH, HEADS * WIDTH)
        self.attention = DistributedAttention(LocalAttention(), group, scatter_idx=2, gather_idx=1)

    def forward(self, x):
        query, key, value = self.qkv(self.norm(x)).chunk(3, -1)
        heads = [one.unflatten(-1, (HEADS, WIDTH)).contiguous() for one in (query, key, value)]
        return x + self.out(self.attention(*heads, 0).flatten(-2))


deepspeed.init_distributed("gloo")
size, rank = dist.get_world_size(), dist.get_rank()
torch.manual_seed(0)
model = nn.Sequential(Block(dist.group.WORLD), Block(dist.group.WORLD))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
data = torch.randn(2, 4, 16, HEADS * WIDTH, generator=torch.Generator().manual_seed(1))
for step in range(2):
    mine = data[step].chunk(size, 1)[rank]
    loss = model(mine).square().mean()
    loss.backward()
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)
        parameter.grad /= size
    optimizer.step()
    optimizer.zero_grad()
    print("step", step, float(loss))
