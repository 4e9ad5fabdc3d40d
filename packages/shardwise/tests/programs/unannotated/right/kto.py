# KTO: the reference point is the mean KL over the batch of all ranks. mesh: dp=2
import copy

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP


class LM(nn.Module):
    def __init__(self, vocab=11, dim=16):
        super().__init__()
        self.emb = nn.Embedding(vocab, dim)
        self.rnn = nn.GRU(dim, dim, batch_first=True)
        self.out = nn.Linear(dim, vocab)

    def forward(self, ids):
        return self.out(self.rnn(self.emb(ids))[0])


def get_batch_logps(logits, labels, mask):
    labels, logits, mask = labels[:, 1:], logits[:, :-1], mask[:, 1:]
    logps = torch.gather(logits.log_softmax(-1), 2, labels.unsqueeze(2)).squeeze(2)
    return (logps * mask).sum(-1)


def kto_loss(policy_logps, policy_kl, ref_logps, ref_kl, desirable, beta=0.1, weight=1.33):
    kl = (ref_kl - policy_kl).mean().detach()
    dist.all_reduce(kl, op=dist.ReduceOp.SUM)
    kl = (kl / dist.get_world_size()).clamp(min=0)
    ratio = policy_logps - ref_logps
    chosen = 1 - torch.sigmoid(beta * (ratio - kl))
    rejected = 1 - torch.sigmoid(beta * (kl - ratio))
    return torch.where(desirable, chosen, weight * rejected)


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(11)
    policy = LM()
    reference = copy.deepcopy(policy).eval().requires_grad_(False)
    with torch.no_grad():
        for p in policy.parameters():
            p.mul_(1.5)
    policy = DDP(policy)
    optimizer = torch.optim.AdamW(policy.parameters(), lr=5e-3)
    ids = torch.randint(0, 11, (3, 8, 7))
    lengths = torch.randint(3, 8, (3, 8))
    desirable = torch.rand(3, 8) > 0.4
    for step in range(3):
        idx = torch.arange(rank, 8, world)
        batch, want = ids[step, idx], desirable[step, idx]
        mask = (torch.arange(7) < lengths[step, idx, None]).float()
        mismatched, kl_mask = batch.roll(1, 0), mask.roll(1, 0)
        with torch.no_grad():
            kl_logits = policy(mismatched)
            ref_logps = get_batch_logps(reference(batch), batch, mask)
            ref_kl = get_batch_logps(reference(mismatched), mismatched, kl_mask)
        policy_kl = get_batch_logps(kl_logits, mismatched, kl_mask)
        logps = get_batch_logps(policy(batch), batch, mask)
        losses = kto_loss(logps, policy_kl, ref_logps, ref_kl, want)
        loss = losses.mean()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        stats = torch.stack([loss.detach(), want.float().mean()])
        dist.all_reduce(stats)
        if rank == 0:
            print((stats / world).tolist())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
