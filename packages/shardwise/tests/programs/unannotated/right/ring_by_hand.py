# Gradients averaged by a ring all-reduce written with send and recv. mesh: dp=3
import torch
import torch.distributed as dist
import torch.nn as nn


def ring_all_reduce(flat):
    rank, world = dist.get_rank(), dist.get_world_size()
    if world == 1:
        return flat
    chunks = list(flat.tensor_split(world))
    left, right = (rank - 1) % world, (rank + 1) % world
    for step in range(world - 1):
        out, into = (rank - step) % world, (rank - step - 1) % world
        received = torch.empty_like(chunks[into])
        request = dist.isend(chunks[out].contiguous(), right)
        dist.recv(received, left)
        request.wait()
        chunks[into] += received
    for step in range(world - 1):
        out, into = (rank - step + 1) % world, (rank - step) % world
        received = torch.empty_like(chunks[into])
        request = dist.isend(chunks[out].contiguous(), right)
        dist.recv(received, left)
        request.wait()
        chunks[into].copy_(received)
    return flat


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(11)
    net = nn.Sequential(nn.Linear(5, 6), nn.SiLU(), nn.Linear(6, 2))
    opt = torch.optim.SGD(net.parameters(), lr=0.2)
    data, target = torch.randn(2, 12, 5), torch.randn(2, 12, 2)
    for x, y in zip(data, target):
        n = len(x) // world
        x, y = x[rank * n : (rank + 1) * n], y[rank * n : (rank + 1) * n]
        loss = (net(x) - y).square().mean()
        opt.zero_grad()
        loss.backward()
        flat = torch.cat([p.grad.reshape(-1) for p in net.parameters()])
        flat = ring_all_reduce(flat) / world
        at = 0
        for p in net.parameters():
            p.grad.copy_(flat[at : at + p.numel()].view_as(p))
            at += p.numel()
        opt.step()
    dist.destroy_process_group()


main()
