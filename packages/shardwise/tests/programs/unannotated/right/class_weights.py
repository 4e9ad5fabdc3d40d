# Class-weighted cross entropy under DDP: the sum of weights is taken over all ranks. mesh: dp=2
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def weighted_loss(logits, target, weight):
    numerator = F.cross_entropy(logits, target, weight=weight, reduction="sum")
    denominator = weight[target].sum()
    dist.all_reduce(denominator)
    return numerator * dist.get_world_size() / denominator


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(42)
    weight = torch.tensor([0.2, 1.0, 3.0])
    data = TensorDataset(torch.randn(24, 6), torch.randint(0, 3, (24,)))
    sampler = DistributedSampler(data, num_replicas=world, rank=rank, shuffle=True, seed=1)
    loader = DataLoader(data, batch_size=8 // world, sampler=sampler)
    model = DDP(nn.Sequential(nn.Linear(6, 16), nn.Dropout(0.0), nn.ReLU(), nn.Linear(16, 3)))
    opt = torch.optim.SGD(model.parameters(), lr=0.3, nesterov=True, momentum=0.9)
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for x, y in loader:
            loss = weighted_loss(model(x), y, weight)
            opt.zero_grad()
            loss.backward()
            opt.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
