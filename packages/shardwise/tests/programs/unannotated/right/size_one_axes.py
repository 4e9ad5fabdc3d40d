# A three-dimensional mesh whose middle axis has size one; DTensors are made over all of them. mesh: dp=2,cp=1,tp=2
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module


class Mixer(nn.Module):
    def __init__(self, dim, cp_mesh):
        super().__init__()
        self.cp_mesh = cp_mesh
        self.up, self.down = nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)
        self.scale = nn.Parameter(torch.ones(dim))

    def forward(self, x):
        pieces = [torch.empty_like(x) for _ in range(self.cp_mesh.size())]
        dist.all_gather(pieces, x.detach().contiguous(), group=self.cp_mesh.get_group())
        context = torch.cat(pieces, 1).mean(1, keepdim=True)
        return x + self.scale * self.down(torch.sigmoid(self.up(x + context)))


def main():
    dist.init_process_group("gloo")
    world = dist.get_world_size()
    sizes = (world // 2, 1, 2) if world > 1 else (1, 1, 1)
    mesh = init_device_mesh("cpu", sizes, mesh_dim_names=("dp", "cp", "tp"))
    torch.manual_seed(15)
    model = nn.Sequential(nn.Linear(6, 8), Mixer(8, mesh["cp"]), nn.Linear(8, 4))
    parallelize_module(model[1], mesh["tp"], {"up": ColwiseParallel(), "down": RowwiseParallel()})
    dp_cp = mesh["dp", "cp"]._flatten("dp_cp")
    fully_shard(model, mesh=dp_cp)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, foreach=False)
    gen = torch.Generator().manual_seed(1)
    for step in range(3):
        batch = torch.randn(4, 6, 6, generator=gen)
        x = distribute_tensor(batch, mesh, [Shard(0), Shard(1), Replicate()]).to_local()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        shown = DTensor.from_local(
            loss.detach() / dp_cp.size(), dp_cp, [torch.distributed.tensor.Partial()]
        ).full_tensor()
        if dist.get_rank() == 0:
            print(step, f"{shown.item():.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
