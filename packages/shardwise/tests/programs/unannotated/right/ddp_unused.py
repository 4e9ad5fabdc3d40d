# DDP over a model with a branch that is not always taken: find_unused_parameters. mesh: dp=2
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Branches(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Linear(4, 6)
        self.even = nn.Linear(6, 2)
        self.odd = nn.Linear(6, 2)

    def forward(self, x, step):
        h = torch.tanh(self.stem(x))
        return self.even(h) if step % 2 == 0 else self.odd(h)


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    model = DDP(Branches(), find_unused_parameters=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x = torch.randn(8, 4)
    for step in range(2):
        out = model(x[rank::world], step)
        loss = out.square().sum(1).mean()
        optimizer.zero_grad(set_to_none=False)
        loss.backward()
        optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
