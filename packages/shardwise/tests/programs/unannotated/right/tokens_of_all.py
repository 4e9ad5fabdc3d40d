# A sequence trainer that counts tokens: summed losses, gradients multiplied by world / tokens of all. mesh: dp=4
import contextlib
from collections import OrderedDict

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F

PAD = 1


def label_smoothed_nll_loss(lprobs, target, epsilon, ignore_index):
    target = target.unsqueeze(-1)
    nll_loss = -lprobs.gather(dim=-1, index=target)
    smooth_loss = -lprobs.sum(dim=-1, keepdim=True)
    pad_mask = target.eq(ignore_index)
    nll_loss.masked_fill_(pad_mask, 0.0)
    smooth_loss.masked_fill_(pad_mask, 0.0)
    nll_loss, smooth_loss = nll_loss.sum(), smooth_loss.sum()
    eps_i = epsilon / (lprobs.size(-1) - 1)
    return (1.0 - epsilon - eps_i) * nll_loss + eps_i * smooth_loss, nll_loss


class Seq2Seq(nn.Module):
    def __init__(self, vocab=14, d=8):
        super().__init__()
        self.embed = nn.Embedding(vocab, d, padding_idx=PAD)
        self.encoder = nn.GRU(d, d, batch_first=True)
        self.decoder = nn.GRU(d, d, batch_first=True)
        self.out = nn.Linear(d, vocab)

    def forward(self, src, prev):
        _, h = self.encoder(self.embed(src))
        y, _ = self.decoder(self.embed(prev), h)
        return self.out(y)

    def get_normalized_probs(self, out):
        return F.log_softmax(out.float(), dim=-1)


class Trainer:
    def __init__(self, model, clip_norm=2.0):
        self.raw, self.clip_norm = model, clip_norm
        self.model = nn.parallel.DistributedDataParallel(model) if dist.is_initialized() else model
        self.optimizer = torch.optim.Adam(model.parameters(), lr=5e-3, betas=(0.9, 0.98))
        self.updates = 0
        self.meters = OrderedDict()

    def maybe_no_sync(self, last):
        return contextlib.nullcontext() if last else self.model.no_sync()

    def train_step(self, samples):
        self.model.train()
        self.optimizer.zero_grad()
        log, sample_size = [], 0
        for i, sample in enumerate(samples):
            with self.maybe_no_sync(i == len(samples) - 1):
                out = self.model(sample["src"], sample["prev"])
                lprobs = self.raw.get_normalized_probs(out).view(-1, out.size(-1))
                loss, nll = label_smoothed_nll_loss(lprobs, sample["target"].reshape(-1), 0.1, PAD)
                loss.backward()
            log.append({"loss": loss.item(), "nll_loss": nll.item(), "ntokens": sample["ntokens"]})
            sample_size += sample["ntokens"]
        sums = OrderedDict((k, sum(x[k] for x in log)) for k in ("loss", "nll_loss", "ntokens"))
        sample_size, sums = self.fast_stat_sync_sum(sample_size, sums)
        self.multiply_grads(dist.get_world_size() / sample_size)
        norm = nn.utils.clip_grad_norm_(self.raw.parameters(), self.clip_norm)
        self.optimizer.step()
        self.set_num_updates(self.updates + 1)
        self.meters["loss"] = sums["loss"] / sample_size
        self.meters["gnorm"] = norm.item()

    def fast_stat_sync_sum(self, sample_size, sums):
        data = OrderedDict(sums, sample_size=sample_size)
        buf = torch.tensor(list(data.values()), dtype=torch.double)
        dist.all_reduce(buf)
        data = OrderedDict(zip(data, buf.tolist()))
        return data.pop("sample_size"), data

    def multiply_grads(self, c):
        for p in self.raw.parameters():
            if p.grad is not None:
                p.grad.data.mul_(c)

    def set_num_updates(self, n):
        self.updates = n
        for group in self.optimizer.param_groups:
            group["lr"] = 5e-3 * min(n**-0.5, n * 4**-1.5) * 2


def collate(pairs):
    width = max(len(t) for _, t in pairs)
    src = torch.stack([s for s, _ in pairs])
    target = torch.full((len(pairs), width), PAD)
    for row, (_, t) in zip(target, pairs):
        row[: len(t)] = t
    prev = torch.cat([torch.full((len(pairs), 1), 2), target[:, :-1]], 1)
    return {"src": src, "prev": prev, "target": target, "ntokens": int(target.ne(PAD).sum())}


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(1)
    trainer = Trainer(Seq2Seq())
    g = torch.Generator().manual_seed(3)
    pairs = [
        (torch.randint(3, 14, (5,), generator=g), torch.randint(3, 14, (int(n),), generator=g))
        for n in torch.randint(2, 7, (32,), generator=g)
    ]
    for step in range(2):
        micro = [pairs[step * 16 + i * 8 : step * 16 + (i + 1) * 8] for i in range(2)]
        trainer.train_step([collate(m[rank::world]) for m in micro])
        if rank == 0:
            print(trainer.meters)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
