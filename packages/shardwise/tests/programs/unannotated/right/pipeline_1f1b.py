# torch.distributed.pipelining with 1F1B; every stage numbers its layers from 0. mesh: pp=2
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B

LAYERS = 4


class Model(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(dim, dim) for _ in range(LAYERS))

    def forward(self, x):
        for layer in self.layers:
            x = torch.tanh(layer(x))
        return x


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    model = Model(6)
    per_stage = LAYERS // world
    model.layers = model.layers[rank * per_stage : (rank + 1) * per_stage]
    stage = PipelineStage(model, rank, world, torch.device("cpu"))
    schedule = Schedule1F1B(stage, n_microbatches=2, loss_fn=nn.functional.mse_loss)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x, y = torch.randn(8, 6), torch.randn(8, 6)
    for _ in range(2):
        optimizer.zero_grad()
        losses = []
        if world == 1:
            schedule.step(x, target=y, losses=losses)
        elif rank == 0:
            schedule.step(x)
        else:
            schedule.step(target=y, losses=losses)
        optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
