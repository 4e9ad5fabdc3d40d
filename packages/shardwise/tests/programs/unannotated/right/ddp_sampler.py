# DDP as in the tutorial: DistributedSampler, DataLoader, Adam. mesh: dp=2
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    x = torch.randn(16, 6)
    dataset = TensorDataset(x, x.sum(1, keepdim=True).sin())
    sampler = DistributedSampler(dataset, num_replicas=world, rank=rank, shuffle=True, seed=1)
    loader = DataLoader(dataset, batch_size=8 // world, sampler=sampler)
    model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 1))
    ddp = DDP(model)
    optimizer = torch.optim.Adam(ddp.parameters(), lr=1e-2)
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for inputs, targets in loader:
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(ddp(inputs), targets)
            loss.backward()
            optimizer.step()
    if rank == 0:
        print(f"loss {loss.item():.4f} pid {os.getpid() > 0}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
