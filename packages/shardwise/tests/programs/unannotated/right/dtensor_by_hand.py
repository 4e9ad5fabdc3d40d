# Parameters distributed by hand, data as a DTensor over dp, a matrix cut over tp. mesh: dp=2,tp=2
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor


def main():
    dist.init_process_group("gloo")
    world = dist.get_world_size()
    tp = min(2, world)
    mesh = init_device_mesh("cpu", (world // tp, tp), mesh_dim_names=("dp", "tp"))
    torch.manual_seed(0)
    up = nn.Parameter(distribute_tensor(torch.randn(6, 8), mesh, [Replicate(), Shard(1)]))
    down = nn.Parameter(distribute_tensor(torch.randn(8, 2), mesh, [Replicate(), Shard(0)]))
    optimizer = torch.optim.SGD([up, down], lr=0.01, foreach=False)
    x = distribute_tensor(torch.randn(8, 6), mesh, [Shard(0), Replicate()])
    for _ in range(2):
        loss = (torch.relu(x @ up) @ down).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
