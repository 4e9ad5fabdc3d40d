"""PPO on data-parallel ranks: categorical actions, advantages normalised over all ranks, clipped ratio, entropy."""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributions import Categorical, Normal

import shardwise as spmd
from shardwise import P, R, S, V

dist.init_process_group("nccl")
mesh = init_device_mesh("cuda", (8,), mesh_dim_names=("dp",))
world = dist.get_world_size()


def normalised(x):
    total = spmd.all_reduce(torch.stack([x.sum(), x.square().sum()]), "dp", src=V, dst=R) / (x.numel() * world)
    mean, square = total.unbind()
    return (x - mean) / (square - mean.square()).clamp_min(0).sqrt().add(1e-8)


with spmd.set_current_mesh(mesh):
    policy = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 3))
    value = nn.Linear(4, 1)
    spmd.assert_type([*policy.parameters(), *value.parameters()], {"dp": R})
    optimizer = torch.optim.Adam([*policy.parameters(), *value.parameters()], lr=3e-4)
    states = spmd.assert_type(torch.randn(16, 4), {"dp": S(0)})
    with torch.no_grad():
        old = Categorical(logits=policy(states))
        actions = old.sample()
        old_log = old.log_prob(actions)
        rewards = Normal(states[:, 0], 1.0).sample()
        advantages = normalised(rewards - value(states).squeeze(-1))
    for _ in range(2):
        new = Categorical(logits=policy(states))
        ratio = (new.log_prob(actions) - old_log).exp()
        surrogate = torch.min(ratio * advantages, ratio.clamp(0.8, 1.2) * advantages)
        error = (value(states).squeeze(-1) - rewards).square()
        loss = (-surrogate + 0.5 * error - 0.01 * new.entropy()).mean() / world
        optimizer.zero_grad()
        spmd.reinterpret(loss, "dp", src=V, dst=P).backward()
        for parameter in [*policy.parameters(), *value.parameters()]:
            dist.all_reduce(parameter.grad)
        optimizer.step()
        divergence = spmd.all_reduce((old_log - new.log_prob(actions)).mean().detach(), "dp", src=V, dst=R) / world
        if divergence > 0.1:
            break
