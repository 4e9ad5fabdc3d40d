# A tensor-parallel MLP by a DTensor plan, with dropout of what all ranks hold: their generators are alike. mesh: tp=2
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module


class Residual(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.up, self.down, self.head = nn.Linear(dim, 2 * dim), nn.Linear(2 * dim, dim), nn.Linear(dim, 3)

    def forward(self, x):
        return self.head(x + F.dropout(self.down(F.gelu(self.up(x))), 0.25, self.training))


def main():
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (dist.get_world_size(),), mesh_dim_names=("tp",))
    torch.manual_seed(0)
    model = parallelize_module(Residual(8), mesh, {"up": ColwiseParallel(), "down": RowwiseParallel()})
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    rows = torch.Generator().manual_seed(2)
    torch.manual_seed(10)
    for _ in range(2):
        x, y = torch.randn(6, 8, generator=rows), torch.randint(3, (6,), generator=rows)
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


main()
