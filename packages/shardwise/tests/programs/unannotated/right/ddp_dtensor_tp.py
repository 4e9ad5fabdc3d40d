# DDP over dp around a model that parallelize_module has split over tp. mesh: dp=2,tp=2
import os

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class Block(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.up = nn.Linear(dim, 4 * dim)
        self.down = nn.Linear(4 * dim, dim)

    def forward(self, x):
        return x + self.down(F.gelu(self.up(self.norm(x))))


def main():
    dist.init_process_group("gloo")
    world = int(os.environ["WORLD_SIZE"])
    tp = 2 if world > 1 else 1
    mesh = init_device_mesh("cpu", (world // tp, tp), mesh_dim_names=("dp", "tp"))
    torch.manual_seed(0)
    inputs = torch.randn(16, 8)
    dataset = TensorDataset(inputs, inputs.cumsum(1))
    sampler = DistributedSampler(dataset, mesh["dp"].size(), mesh["dp"].get_local_rank(), shuffle=False)
    loader = DataLoader(dataset, batch_size=8 // mesh["dp"].size(), sampler=sampler)
    block = Block(8)
    if tp > 1:
        block = parallelize_module(block, mesh["tp"], {"up": ColwiseParallel(), "down": RowwiseParallel()})
    model = DDP(block, device_mesh=mesh["dp"])
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for x, y in loader:
        loss = F.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        mean = loss.detach().clone()
        dist.all_reduce(mean, group=mesh["dp"].get_group())
        mean /= mesh["dp"].size()
        if dist.get_rank() == 0:
            print(f"loss {mean.item():.5f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
