# torch.distributed.pipelining with GPipe; every stage keeps its layers of the whole model. mesh: pp=2
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe

LAYERS = 4


class Model(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.layers = nn.ModuleDict({str(i): nn.Linear(dim, dim) for i in range(LAYERS)})

    def forward(self, x):
        for layer in self.layers.values():
            x = torch.tanh(layer(x))
        return x


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    model = Model(6)
    per_stage = LAYERS // world
    for i in range(LAYERS):
        if i // per_stage != rank:
            del model.layers[str(i)]
    stage = PipelineStage(model, rank, world, torch.device("cpu"))
    schedule = ScheduleGPipe(stage, n_microbatches=2, loss_fn=nn.functional.mse_loss)
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
