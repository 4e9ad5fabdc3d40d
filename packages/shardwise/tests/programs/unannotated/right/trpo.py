# TRPO: conjugate gradients of Fisher products, averaged over all workers. mesh: dp=2
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributions import Categorical, kl_divergence
from torch.nn.utils import parameters_to_vector, vector_to_parameters


def mean_over_workers(t):
    dist.all_reduce(t)
    return t / dist.get_world_size()


def flat_grad(y, params, **kw):
    grads = torch.autograd.grad(y, params, **kw)
    return torch.cat([g.reshape(-1) for g in grads])


def conjugate_gradient(avp, b, iters=6):
    x = torch.zeros_like(b)
    r, p = b.clone(), b.clone()
    rr = r @ r
    for _ in range(iters):
        ap = avp(p)
        alpha = rr / (p @ ap + 1e-8)
        x += alpha * p
        r -= alpha * ap
        new = r @ r
        p = r + new / rr * p
        rr = new
    return x


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 12), nn.Tanh(), nn.Linear(12, 3))

    def forward(self, obs):
        return Categorical(logits=self.body(obs))


def trpo_step(policy, obs, act, adv, max_kl=0.01, damping=0.1):
    params = list(policy.parameters())
    old = policy(obs)
    old_logp = old.log_prob(act).detach()
    frozen = Categorical(logits=old.logits.detach())

    def surrogate():
        return (torch.exp(policy(obs).log_prob(act) - old_logp) * adv).mean()

    g = mean_over_workers(flat_grad(surrogate(), params))

    def fisher(v):
        kl = kl_divergence(frozen, policy(obs)).mean()
        grad = flat_grad(kl, params, create_graph=True)
        hv = flat_grad(grad @ v, params)
        return mean_over_workers(hv) + damping * v

    step_dir = conjugate_gradient(fisher, g)
    shs = 0.5 * step_dir @ fisher(step_dir)
    full = step_dir * torch.sqrt(max_kl / shs)
    before = parameters_to_vector(params).detach()
    base = mean_over_workers(surrogate().detach())
    for frac in (1.0, 0.5, 0.25, 0.125):
        vector_to_parameters(before + frac * full, params)
        with torch.no_grad():
            gain = mean_over_workers(surrogate()) - base
            kl = mean_over_workers(kl_divergence(frozen, policy(obs)).mean())
        if gain > 0 and kl < 1.5 * max_kl:
            return float(gain), float(kl)
    vector_to_parameters(before, params)
    return 0.0, 0.0


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(1)
    policy = Policy()
    obs = torch.randn(3, 16, 4)
    act = torch.randint(0, 3, (3, 16))
    adv = torch.randn(3, 16)
    for it in range(3):
        part = slice(rank * 16 // world, (rank + 1) * 16 // world)
        out = trpo_step(policy, obs[it, part], act[it, part], adv[it, part])
        if rank == 0:
            print("gain {:.5f} kl {:.5f}".format(*out))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
