# FSDP2 with mixed precision, wrapped checkpointed blocks, prefetching, tied weights and a full state dict. mesh: dp=2
import functools

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import (
    apply_activation_checkpointing,
    checkpoint_wrapper,
)
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    set_model_state_dict,
)
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard


class Attention(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(dim, 3 * dim, bias=False)
        self.proj = nn.Linear(dim, dim, bias=False)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(x).view(b, t, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.proj(y.transpose(1, 2).reshape(b, t, d))


class Block(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.ln1, self.ln2 = nn.RMSNorm(dim), nn.RMSNorm(dim)
        self.attn = Attention(dim, heads)
        self.mlp = nn.Sequential(nn.Linear(dim, 4 * dim), nn.SiLU(), nn.Linear(4 * dim, dim))

    def forward(self, x):
        x = x + self.attn(self.ln1(x))
        return x + self.mlp(self.ln2(x))


class GPT(nn.Module):
    def __init__(self, vocab=32, dim=16, heads=2, layers=3, seq=8):
        super().__init__()
        self.tok, self.pos = nn.Embedding(vocab, dim), nn.Embedding(seq, dim)
        self.blocks = nn.ModuleList(Block(dim, heads) for _ in range(layers))
        self.ln = nn.RMSNorm(dim)
        self.head = nn.Linear(dim, vocab, bias=False)
        self.head.weight = self.tok.weight

    def forward(self, ids):
        x = self.tok(ids) + self.pos(torch.arange(ids.shape[1], device=ids.device))
        for block in self.blocks:
            x = block(x)
        return self.head(self.ln(x))


def build(rank):
    torch.manual_seed(42)
    model = GPT()
    full = model.state_dict()
    apply_activation_checkpointing(
        model, checkpoint_wrapper_fn=functools.partial(checkpoint_wrapper), check_fn=lambda m: isinstance(m, Block)
    )
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for i, block in enumerate(model.blocks):
        fully_shard(block, mp_policy=policy, reshard_after_forward=i < len(model.blocks) - 1)
    fully_shard(model, mp_policy=policy)
    for before, after in zip(model.blocks, list(model.blocks)[1:]):
        before.set_modules_to_forward_prefetch([after])
    set_model_state_dict(model, full, options=StateDictOptions(full_state_dict=True))
    assert isinstance(model, FSDPModule)
    return model


def train():
    dist.init_process_group("cpu:gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    model = build(rank)
    optim = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.95), weight_decay=0.1)
    data = torch.randint(0, 32, (3, 8, 9), generator=torch.Generator().manual_seed(7))
    for step, batch in enumerate(data):
        local = batch.chunk(world)[rank]
        logits = model(local[:, :-1])
        loss = nn.functional.cross_entropy(logits.flatten(0, 1).float(), local[:, 1:].flatten())
        loss.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optim.step()
        optim.zero_grad()
        mean = loss.detach().clone()
        dist.all_reduce(mean)
        norm = norm.full_tensor().item()
        if rank == 0:
            print("step", step, "loss", round(mean.item() / world, 3), "norm", round(norm, 2))
    state = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True, cpu_offload=True))
    if rank == 0:
        print("weights", len(state), round(sum(v.float().abs().sum().item() for v in state.values()), 1))
    dist.destroy_process_group()


if __name__ == "__main__":
    train()
