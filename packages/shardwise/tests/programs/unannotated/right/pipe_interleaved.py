# Interleaved 1F1B: every rank holds two stages that are far apart, with data parallelism beside it. mesh: pp=2,dp=2
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.pipelining import PipelineStage, ScheduleInterleaved1F1B

DEPTH = 4


class Layer(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.lin = nn.Linear(width, width)

    def forward(self, x):
        return x + torch.tanh(self.lin(self.norm(x)))


class Chunk(nn.Module):
    def __init__(self, layers, head=None):
        super().__init__()
        self.layers = nn.ModuleDict(layers)
        self.head = head

    def forward(self, x):
        for layer in self.layers.values():
            x = layer(x)
        return x if self.head is None else self.head(x)


def main():
    dist.init_process_group("gloo")
    world = dist.get_world_size()
    pp = 2 if world > 1 else 1
    mesh = init_device_mesh("cpu", (pp, world // pp), mesh_dim_names=("pp", "dp"))
    pp_rank, dp_rank, dp = mesh["pp"].get_local_rank(), mesh["dp"].get_local_rank(), mesh["dp"].size()
    torch.manual_seed(0)
    layers = [Layer(8) for _ in range(DEPTH)]
    head = nn.Linear(8, 3)
    stages = []
    for index in range(pp_rank, DEPTH, pp):
        chunk = Chunk({str(index): layers[index]}, head if index == DEPTH - 1 else None)
        stages.append(PipelineStage(chunk, index, DEPTH, torch.device("cpu"), group=mesh["pp"].get_group()))
    params = [p for stage in stages for p in stage.submod.parameters()]
    schedule = ScheduleInterleaved1F1B(stages, n_microbatches=4, loss_fn=nn.functional.cross_entropy)
    optimizer = torch.optim.AdamW(params, lr=1e-2)
    for step in range(2):
        generator = torch.Generator().manual_seed(step)
        x = torch.randn(16, 8, generator=generator).chunk(dp)[dp_rank]
        y = torch.randint(3, (16,), generator=generator).chunk(dp)[dp_rank]
        optimizer.zero_grad()
        losses = []
        first, last = pp_rank == 0, pp_rank == pp - 1
        schedule.step(*([x] if first else []), target=y if last else None, losses=losses if last else None)
        for p in params:
            dist.all_reduce(p.grad, group=mesh["dp"].get_group())
            p.grad.div_(dp)
        optimizer.step()
        if last:
            loss = torch.stack(losses).mean().detach()
            dist.all_reduce(loss, group=mesh["dp"].get_group())
            if dp_rank == 0:
                print("step", step, "loss", f"{loss.item() / dp:.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
