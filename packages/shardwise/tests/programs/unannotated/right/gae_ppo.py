# Advantages normalised over all ranks by sums and counts, clipped value loss, data parallel by hand. mesh: dp=2
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributions import Categorical


class ActorCritic(nn.Module):
    def __init__(self, obs=5, act=3, h=16):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(obs, h), nn.Tanh())
        self.pi, self.v = nn.Linear(h, act), nn.Linear(h, 1)

    def forward(self, x):
        h = self.trunk(x)
        return self.pi(h), self.v(h).squeeze(-1)


def gae(rewards, values, dones, gamma=0.97, lam=0.9):
    n, t = rewards.shape
    advantages = torch.zeros(n, t)
    last = torch.zeros(n)
    for i in reversed(range(t)):
        nxt = values[:, i + 1] if i + 1 < t else torch.zeros(n)
        alive = 1 - dones[:, i]
        delta = rewards[:, i] + gamma * nxt * alive - values[:, i]
        last = delta + gamma * lam * alive * last
        advantages[:, i] = last
    return advantages


def normalise(x):
    stats = torch.stack([x.sum(), x.square().sum(), torch.tensor(float(x.numel()))])
    dist.all_reduce(stats)
    mean = stats[0] / stats[2]
    var = stats[1] / stats[2] - mean.square()
    return (x - mean) / (var + 1e-6).sqrt()


def rollout(g, n=8, t=6, obs=5, act=3):
    return (
        torch.randn(n, t, obs, generator=g),
        torch.randint(0, act, (n, t), generator=g),
        torch.randn(n, t, generator=g),
        (torch.rand(n, t, generator=g) < 0.2).float(),
    )


def average_gradients(model, world):
    flat = torch.cat([p.grad.reshape(-1) for p in model.parameters()])
    dist.all_reduce(flat)
    flat /= world
    start = 0
    for p in model.parameters():
        p.grad.copy_(flat[start : start + p.numel()].view_as(p))
        start += p.numel()


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(2)
    model = ActorCritic()
    opt = torch.optim.Adam(model.parameters(), lr=3e-3)
    g = torch.Generator().manual_seed(21)
    for _ in range(2):
        obs, actions, rewards, dones = (x.chunk(world)[rank] for x in rollout(g))
        with torch.no_grad():
            logits, old_values = model(obs)
            old_logp = Categorical(logits=logits).log_prob(actions)
            advantages = gae(rewards, old_values, dones)
            returns = advantages + old_values
            advantages = normalise(advantages)
        for _ in range(2):
            logits, values = model(obs)
            policy = Categorical(logits=logits)
            ratio = (policy.log_prob(actions) - old_logp).exp()
            pg = -torch.min(ratio * advantages, ratio.clamp(0.8, 1.2) * advantages).mean()
            clipped = old_values + (values - old_values).clamp(-0.2, 0.2)
            vf = 0.5 * torch.max((values - returns).square(), (clipped - returns).square()).mean()
            loss = pg + 0.5 * vf - 0.01 * policy.entropy().mean()
            opt.zero_grad()
            loss.backward()
            average_gradients(model, world)
            opt.step()
    total = loss.detach().clone()
    dist.all_reduce(total)
    print("RESULT", (total / world).item(), sum(p.abs().sum().item() for p in model.parameters()))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
