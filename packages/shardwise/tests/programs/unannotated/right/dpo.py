# DPO: a frozen reference, pairs of answers with masks, data parallel by hand. mesh: dp=2
import copy

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F


class Policy(nn.Module):
    def __init__(self, vocab=17, d=12):
        super().__init__()
        self.embed = nn.Embedding(vocab, d)
        self.mix = nn.GRU(d, d, batch_first=True)
        self.norm = nn.LayerNorm(d)
        self.head = nn.Linear(d, vocab, bias=False)

    def forward(self, ids):
        h, _ = self.mix(self.embed(ids))
        return self.head(self.norm(h))


def log_probs(model, ids, mask):
    logits = model(ids[:, :-1])
    picked = logits.log_softmax(-1).gather(-1, ids[:, 1:, None]).squeeze(-1)
    return (picked * mask[:, 1:]).sum(-1)


def dpo_loss(policy, reference, batch, beta):
    chosen = log_probs(policy, batch["chosen"], batch["chosen_mask"])
    rejected = log_probs(policy, batch["rejected"], batch["rejected_mask"])
    with torch.no_grad():
        ref_chosen = log_probs(reference, batch["chosen"], batch["chosen_mask"])
        ref_rejected = log_probs(reference, batch["rejected"], batch["rejected_mask"])
    margin = beta * ((chosen - ref_chosen) - (rejected - ref_rejected))
    return -F.logsigmoid(margin).mean(), (margin > 0).float().mean()


def make_batch(g, n=8, length=7, vocab=17):
    made = {}
    for name in ("chosen", "rejected"):
        made[name] = torch.randint(0, vocab, (n, length), generator=g)
        ends = torch.randint(3, length + 1, (n, 1), generator=g)
        made[name + "_mask"] = (torch.arange(length)[None] < ends).float()
    return made


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(5)
    policy = Policy()
    reference = copy.deepcopy(policy).eval().requires_grad_(False)
    with torch.no_grad():
        policy.head.weight.add_(
            0.05 * torch.randn(policy.head.weight.shape, generator=torch.Generator().manual_seed(9))
        )
    opt = torch.optim.AdamW(policy.parameters(), lr=2e-3)
    g = torch.Generator().manual_seed(11)
    for _ in range(3):
        batch = {k: v.chunk(world)[rank] for k, v in make_batch(g).items()}
        loss, accuracy = dpo_loss(policy, reference, batch, beta=0.5)
        opt.zero_grad()
        loss.backward()
        for p in policy.parameters():
            dist.all_reduce(p.grad)
            p.grad /= world
        torch.nn.utils.clip_grad_norm_(policy.parameters(), 0.5)
        opt.step()
        stats = torch.stack([loss.detach(), accuracy])
        dist.all_reduce(stats)
        stats /= world
    print("RESULT", stats.tolist(), policy.head.weight.abs().sum().item())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
