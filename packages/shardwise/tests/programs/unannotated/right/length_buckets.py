# Batches by length, another number of tokens on every rank, no_sync and a loss by tokens. mesh: dp=4
import contextlib
import random

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

PAD = 0


class LengthBucketSampler:
    def __init__(self, lengths, per_rank, rank, world, seed=0):
        self.lengths, self.per_rank, self.rank, self.world, self.seed = lengths, per_rank, rank, world, seed

    def __iter__(self):
        order = sorted(range(len(self.lengths)), key=lambda i: self.lengths[i])
        size = self.per_rank * self.world
        batches = [order[i : i + size] for i in range(0, len(order) - size + 1, size)]
        random.Random(self.seed).shuffle(batches)
        for b in batches:
            yield b[self.rank :: self.world]


def collate(samples):
    n = max(len(s) for s in samples)
    return torch.stack([F.pad(s, (0, n - len(s)), value=PAD) for s in samples])


class Tagger(nn.Module):
    def __init__(self, vocab=30, d=16):
        super().__init__()
        self.emb = nn.Embedding(vocab, d, padding_idx=PAD)
        self.lstm = nn.LSTM(d, d, batch_first=True)
        self.proj = nn.Linear(d, vocab)

    def forward(self, x):
        h, _ = self.lstm(self.emb(x))
        return self.proj(h)


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    rng = random.Random(5)
    corpus = [torch.tensor([rng.randrange(1, 30) for _ in range(rng.randrange(4, 14))]) for _ in range(64)]
    torch.manual_seed(0)
    model = DDP(Tagger())
    opt = torch.optim.Adam(model.parameters(), lr=1e-2, eps=1e-3)
    accumulate = 2
    group = []
    step = 0
    for batch in LengthBucketSampler([len(c) for c in corpus], 16 // world, rank, world):
        group.append(collate([corpus[i] for i in batch]))
        if len(group) < accumulate:
            continue
        tokens = torch.tensor(sum(int((b[:, 1:] != PAD).sum()) for b in group), dtype=torch.float64)
        dist.all_reduce(tokens)
        step_loss = torch.zeros(())
        for i, b in enumerate(group):
            sync = contextlib.nullcontext() if i == accumulate - 1 else model.no_sync()
            with sync:
                logits = model(b[:, :-1])
                loss = F.cross_entropy(logits.transpose(1, 2), b[:, 1:], ignore_index=PAD, reduction="sum")
                loss = loss * world / tokens.float()
                loss.backward()
            step_loss += loss.detach()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 0.7)
        opt.step()
        opt.zero_grad()
        group = []
        dist.all_reduce(step_loss)
        if rank == 0:
            print(f"{step}: {step_loss.item() / world:.6f} {norm.item():.6f}")
        step += 1


main()
