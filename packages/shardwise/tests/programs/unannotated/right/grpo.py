# GRPO: groups of answers, accumulation without synchronising, a penalty for leaving the old policy. mesh: dp=2
from contextlib import nullcontext
from dataclasses import dataclass

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP


@dataclass
class Config:
    prompts: int = 8
    answers: int = 4
    micro: int = 2
    clip: float = 0.2
    kl: float = 0.05
    lr: float = 0.05
    max_norm: float = 1.0


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(5, 16), nn.Tanh())
        self.pi = nn.Linear(16, 7)

    def forward(self, obs):
        return self.pi(self.body(obs)).log_softmax(-1)


def advantages(rewards):
    mean, std = rewards.mean(1, keepdim=True), rewards.std(1, keepdim=True)
    return (rewards - mean) / (std + 1e-4)


def main(cfg):
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(77)
    policy = DDP(Policy())
    opt = torch.optim.Adam(policy.parameters(), lr=cfg.lr)
    prompts = torch.randn(cfg.prompts, 5)
    actions = torch.randint(0, 7, (cfg.prompts, cfg.answers))
    rewards = torch.randn(cfg.prompts, cfg.answers)
    local = torch.arange(cfg.prompts).view(-1, world)[:, rank]
    prompts, actions, adv = prompts[local], actions[local], advantages(rewards[local])
    with torch.no_grad():
        old = policy.module(prompts).gather(1, actions)
    for it in range(3):
        opt.zero_grad()
        total = 0.0
        parts = torch.arange(len(local)).chunk(cfg.micro)
        for k, part in enumerate(parts):
            last = k == len(parts) - 1
            with nullcontext() if last else policy.no_sync():
                logp = policy(prompts[part]).gather(1, actions[part])
                ratio = (logp - old[part]).exp()
                surrogate = torch.min(ratio * adv[part], ratio.clamp(1 - cfg.clip, 1 + cfg.clip) * adv[part])
                k3 = (old[part] - logp).exp() - (old[part] - logp) - 1
                loss = (cfg.kl * k3 - surrogate).mean() / len(parts)
                loss.backward()
                total += loss.item()
        norm = nn.utils.clip_grad_norm_(policy.parameters(), cfg.max_norm)
        opt.step()
        log = torch.tensor(total)
        dist.reduce(log, 0)
        if rank == 0:
            print(f"{it} loss {log.item() / world:.5f} norm {norm.item():.5f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Config())
