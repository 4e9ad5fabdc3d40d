# DDP under Join, which waits for ranks whose inputs run out first. mesh: dp=2
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel as DDP


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(9)
    model = DDP(nn.Sequential(nn.Linear(3, 6), nn.ELU(), nn.Linear(6, 1)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    gen = torch.Generator().manual_seed(2)
    x, y = torch.randn(4, 8, 3, generator=gen), torch.randn(4, 8, 1, generator=gen)
    with Join([model]):
        for inputs, targets in zip(x, y):
            optimizer.zero_grad()
            loss = nn.functional.huber_loss(model(inputs.chunk(world)[rank]), targets.chunk(world)[rank])
            loss.backward()
            optimizer.step()
    total = sum(p.detach().square().sum() for p in model.parameters())
    if rank == 0:
        print(f"squares {total.item():.5f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
