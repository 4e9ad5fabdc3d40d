# The tracing front end of torch's pipelining: a model split at a module, run by GPipe. mesh: pp=2
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import ScheduleGPipe, SplitPoint, pipeline


class MLP(nn.Module):
    def __init__(self):
        super().__init__()
        self.lower = nn.Sequential(nn.Linear(6, 10), nn.ReLU())
        self.upper = nn.Sequential(nn.Linear(10, 10), nn.ReLU())
        self.last = nn.Linear(10, 2)

    def forward(self, x):
        return self.last(self.upper(self.lower(x)))


def main():
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(8)
    model = MLP()
    x, y = torch.randn(3, 8, 6), torch.randn(3, 8, 2)
    if size == 1:
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        for i in range(3):
            optimizer.zero_grad()
            total = 0.0
            for inputs, targets in zip(x[i].chunk(2), y[i].chunk(2)):
                loss = nn.functional.mse_loss(model(inputs), targets) / 2
                loss.backward()
                total += loss.item()
            optimizer.step()
            print(f"{i}: {total:.4f}")
    else:
        pipe = pipeline(model, mb_args=(x[0, :4],), split_spec={"upper": SplitPoint.BEGINNING})
        stage = pipe.build_stage(rank, torch.device("cpu"))
        schedule = ScheduleGPipe(stage, 2, loss_fn=nn.functional.mse_loss)
        optimizer = torch.optim.Adam(stage.submod.parameters(), lr=0.01)
        for i in range(3):
            optimizer.zero_grad()
            if rank == 0:
                schedule.step(x[i])
            else:
                losses = []
                schedule.step(target=y[i], losses=losses)
                print(f"{i}: {sum(losses).item() / 2:.4f}")
            optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
