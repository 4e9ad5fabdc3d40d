# fully_shard over two axes of a mesh at once, which a sampler deals the samples out over. mesh: dp=2,cp=2
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def main():
    dist.init_process_group("gloo")
    world = int(os.environ["WORLD_SIZE"])
    dp = 2 if world > 1 else 1
    mesh = init_device_mesh("cpu", (dp, world // dp), mesh_dim_names=("dp", "cp"))
    both = mesh["dp", "cp"]._flatten("dp_cp")
    torch.manual_seed(0)
    inputs = torch.randn(32, 8)
    dataset = TensorDataset(inputs, inputs[:, :3].tanh())
    sampler = DistributedSampler(dataset, both.size(), both.get_local_rank(), shuffle=False)
    loader = DataLoader(dataset, batch_size=16 // both.size(), sampler=sampler)
    model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 3))
    for layer in (model[0], model[2]):
        fully_shard(layer, mesh=both)
    fully_shard(model, mesh=both)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for x, y in loader:
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        mean = loss.detach().clone()
        dist.all_reduce(mean, group=both.get_group())
        mean /= both.size()
        if dist.get_rank() == 0:
            print(f"loss {mean.item():.5f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
