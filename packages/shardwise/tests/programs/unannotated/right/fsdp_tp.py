# FSDP2 over a DTensor plan: weights are cut by tp and then by dp. mesh: dp=2,tp=2
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module


class Block(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.up = nn.Linear(dim, 2 * dim, bias=False)
        self.down = nn.Linear(2 * dim, dim, bias=False)

    def forward(self, x):
        return x + self.down(torch.relu(self.up(x)))


def main():
    dist.init_process_group("gloo")
    world = dist.get_world_size()
    tp = min(2, world)
    mesh = init_device_mesh("cpu", (world // tp, tp), mesh_dim_names=("dp", "tp"))
    torch.manual_seed(0)
    model = nn.Sequential(Block(8), Block(8))
    for block in model:
        parallelize_module(block, mesh["tp"], {"up": ColwiseParallel(), "down": RowwiseParallel()})
        fully_shard(block, mesh=mesh["dp"])
    fully_shard(model, mesh=mesh["dp"])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, foreach=False)
    x = torch.randn(8, 8)
    dp_rank, dp_size = mesh["dp"].get_local_rank(), mesh["dp"].size()
    for _ in range(2):
        loss = model(x.chunk(dp_size)[dp_rank]).square().mean()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.1, foreach=False)
        optimizer.step()
        optimizer.zero_grad()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
