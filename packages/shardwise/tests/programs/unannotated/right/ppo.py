# A policy update with advantages normalised over all ranks. mesh: dp=2
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributions import Categorical
from torch.nn.parallel import DistributedDataParallel as DDP


class ActorCritic(nn.Module):
    def __init__(self, obs=6, actions=3):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(obs, 32), nn.Tanh())
        self.pi, self.v = nn.Linear(32, actions), nn.Linear(32, 1)

    def forward(self, obs):
        h = self.body(obs)
        return self.pi(h), self.v(h).squeeze(-1)


def global_mean_std(x):
    stats = torch.stack([x.sum(), x.pow(2).sum(), torch.tensor(float(x.numel()))])
    dist.all_reduce(stats)
    mean = stats[0] / stats[2]
    return mean, (stats[1] / stats[2] - mean**2).clamp_min(0).sqrt()


def rollout(gen, n=32):
    return {
        "obs": torch.randn(n, 6, generator=gen),
        "action": torch.randint(0, 3, (n,), generator=gen),
        "log_prob": -torch.rand(n, generator=gen) - 0.5,
        "reward": torch.randn(n, generator=gen) * 2 + 1,
    }


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    agent = DDP(ActorCritic())
    optimizer = torch.optim.Adam(agent.parameters(), lr=3e-3, eps=1e-5)
    gen = torch.Generator().manual_seed(1)
    for update in range(3):
        batch = {k: v.chunk(world)[rank] for k, v in rollout(gen).items()}
        with torch.no_grad():
            value = agent.module(batch["obs"])[1]
            advantage = batch["reward"] - value
            mean, std = global_mean_std(advantage)
            advantage = (advantage - mean) / (std + 1e-8)
        for _ in range(2):
            logits, value = agent(batch["obs"])
            policy = Categorical(logits=logits)
            ratio = (policy.log_prob(batch["action"]) - batch["log_prob"]).exp()
            clipped = torch.clamp(ratio, 0.8, 1.2) * advantage
            policy_loss = -torch.min(ratio * advantage, clipped).mean()
            value_loss = 0.5 * (value - batch["reward"]).pow(2).mean()
            loss = policy_loss + 0.5 * value_loss - 0.01 * policy.entropy().mean()
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
            optimizer.step()
        log = loss.detach().clone()
        dist.all_reduce(log)
        if rank == 0:
            print(f"update {update} loss {log.item() / world:.6f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
