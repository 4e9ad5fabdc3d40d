# DTensor's plan for a transformer's MLP: columns, rows, sequence parallel. mesh: tp=2
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)


class Block(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.up = nn.Linear(dim, 2 * dim)
        self.down = nn.Linear(2 * dim, dim)

    def forward(self, x):
        return x + self.down(torch.relu(self.up(self.norm(x))))


PLAN = {
    "norm": SequenceParallel(),
    "up": ColwiseParallel(input_layouts=Shard(1)),
    "down": RowwiseParallel(output_layouts=Shard(1)),
}


def main():
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (dist.get_world_size(),), mesh_dim_names=("tp",))
    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(10, 8), Block(8), Block(8), nn.Linear(8, 10))
    for layer in model[1:3]:
        parallelize_module(layer, mesh, PLAN)
    parallelize_module(
        model,
        mesh,
        {
            "0": RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1)),
            "3": ColwiseParallel(input_layouts=Shard(1), output_layouts=Replicate()),
        },
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, foreach=False)
    tokens = torch.randint(10, (2, 7))
    for _ in range(2):
        loss = nn.functional.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
