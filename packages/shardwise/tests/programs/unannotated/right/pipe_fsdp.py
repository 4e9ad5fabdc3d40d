# Pipelining over FSDP2: each stage is sharded over its own data-parallel ranks. mesh: pp=2,dp=2
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.pipelining import PipelineStage, Schedule1F1B


class Stage(nn.Module):
    def __init__(self, blocks):
        super().__init__()
        self.blocks = nn.ModuleList(blocks)

    def forward(self, x):
        for block in self.blocks:
            x = x + block(x)
        return x


def main():
    dist.init_process_group("gloo")
    world = dist.get_world_size()
    pp = min(world, 2)
    mesh = init_device_mesh("cpu", (pp, world // pp), mesh_dim_names=("pp", "dp"))
    me, dp_rank, dp = mesh.get_local_rank("pp"), mesh.get_local_rank("dp"), mesh["dp"].size()
    torch.manual_seed(21)
    blocks = [nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 8)) for _ in range(4)]
    share = len(blocks) // pp
    model = Stage(blocks[me * share : (me + 1) * share])
    for block in model.blocks:
        fully_shard(block, mesh=mesh["dp"], reshard_after_forward=False)
    fully_shard(model, mesh=mesh["dp"])
    stage = PipelineStage(model, me, pp, torch.device("cpu"), group=mesh.get_group("pp"))
    schedule = Schedule1F1B(stage, 2, loss_fn=lambda out, y: (out - y).square().mean())
    optim = torch.optim.SGD(model.parameters(), lr=0.2)
    for it in range(3):
        gen = torch.Generator().manual_seed(it)
        x, y = torch.randn(8, 8, generator=gen), torch.randn(8, 8, generator=gen)
        x, y = x.chunk(dp)[dp_rank], y.chunk(dp)[dp_rank]
        losses = []
        kwargs = {"target": y, "losses": losses} if me == pp - 1 else {}
        schedule.step(*((x,) if me == 0 else ()), **kwargs)
        optim.step()
        optim.zero_grad()
        if losses:
            mean = sum(losses).detach() / len(losses)
            dist.all_reduce(mean, group=mesh.get_group("dp"))
            if dp_rank == 0:
                print(f"iteration {it}: {mean.item() / dp:.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
