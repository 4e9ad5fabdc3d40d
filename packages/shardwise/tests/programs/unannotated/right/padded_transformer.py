# nn.Transformer under DDP with padding masks; tokens counted over all ranks. mesh: dp=2
import dataclasses
import itertools

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, IterableDataset

PAD = 0


class Pairs(IterableDataset):
    def __init__(self, n, rank, world):
        self.n, self.rank, self.world = n, rank, world

    def __iter__(self):
        g = torch.Generator().manual_seed(5)
        items = []
        for _ in range(self.n):
            a = torch.randint(3, 7, (1,), generator=g).item()
            b = torch.randint(3, 7, (1,), generator=g).item()
            items.append((torch.randint(1, 20, (a,), generator=g), torch.randint(1, 20, (b,), generator=g)))
        yield from itertools.islice(items, self.rank, None, self.world)


def collate(batch):
    def pad(xs):
        return torch.stack([F.pad(x, (0, 8 - len(x)), value=PAD) for x in xs])

    src, tgt = zip(*batch)
    return pad(src), pad(tgt)


@dataclasses.dataclass
class Output:
    logits: torch.Tensor
    loss: torch.Tensor
    tokens: torch.Tensor


class Seq2Seq(nn.Module):
    def __init__(self, vocab=20, d=16):
        super().__init__()
        self.emb = nn.Embedding(vocab, d, padding_idx=PAD)
        self.pos = nn.Embedding(16, d)
        self.net = nn.Transformer(d, 2, 1, 1, 32, dropout=0.0, batch_first=True, norm_first=True)
        self.out = nn.Linear(d, vocab, bias=False)
        self.out.weight = self.emb.weight
        self.register_buffer("causal", nn.Transformer.generate_square_subsequent_mask(7), persistent=False)

    def embed(self, x):
        return self.emb(x) + self.pos(torch.arange(x.size(1), device=x.device))

    def forward(self, src, tgt):
        inp, labels = tgt[:, :-1], tgt[:, 1:]
        h = self.net(
            self.embed(src),
            self.embed(inp),
            tgt_mask=self.causal,
            src_key_padding_mask=(src == PAD),
            memory_key_padding_mask=(src == PAD),
        )
        logits = self.out(h)
        loss = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=PAD, reduction="sum")
        return Output(logits, loss, (labels != PAD).sum())


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    model = DDP(Seq2Seq())
    opt = torch.optim.AdamW(model.parameters(), lr=3e-3)
    sched = torch.optim.lr_scheduler.OneCycleLR(opt, 3e-3, total_steps=10)
    loader = DataLoader(Pairs(16, rank, world), batch_size=8 // world, collate_fn=collate)
    for _epoch in range(2):
        for src, tgt in loader:
            out = model(src, tgt)
            total = out.tokens.clone()
            dist.all_reduce(total)
            loss = out.loss * world / total
            opt.zero_grad(set_to_none=True)
            loss.backward()
            norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()
            sched.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
