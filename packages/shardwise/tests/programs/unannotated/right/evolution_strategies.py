# Evolution strategies: members by rank, noise from a seed for each, gradients made of summed scores. mesh: dp=2
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters


def fitness(model, vector, x, y):
    vector_to_parameters(vector, model.parameters())
    with torch.no_grad():
        return -nn.functional.mse_loss(model(x), y)


def centered_ranks(x):
    order = x.argsort().argsort().float()
    return order / (len(x) - 1) - 0.5


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    policy, worker = (nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 1)) for _ in range(2))
    optimizer = torch.optim.SGD(policy.parameters(), lr=0.1, momentum=0.9)
    population, sigma = 16, 0.1
    x = torch.randn(20, 3)
    y = x.sum(1, keepdim=True).sin()
    members = range(rank, population, world)
    for generation in range(3):
        theta = parameters_to_vector(policy.parameters()).detach().clone()
        scores = torch.zeros(population, 2)
        for m in members:
            noise = torch.randn(theta.shape, generator=torch.Generator().manual_seed(1000 * generation + m))
            for s, sign in enumerate((1, -1)):
                scores[m, s] = fitness(worker, theta + sign * sigma * noise, x, y)
        dist.all_reduce(scores)
        weights = centered_ranks(scores.flatten()).view(population, 2)
        step = torch.zeros_like(theta)
        for m in members:
            noise = torch.randn(theta.shape, generator=torch.Generator().manual_seed(1000 * generation + m))
            step += (weights[m, 0] - weights[m, 1]) * noise
        dist.all_reduce(step)
        step /= 2 * population * sigma
        offset = 0
        for p in policy.parameters():
            p.grad = -step[offset : offset + p.numel()].view_as(p).clone()
            offset += p.numel()
        optimizer.step()
        if rank == 0:
            print(f"generation {generation} best {scores.max().item():.5f} mean {scores.mean().item():.5f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
