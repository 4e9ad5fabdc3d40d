# torch.compile over DDP, a compiled loss function and a compiled optimizer step. mesh: dp=2
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class ConvNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(2, 4, 3, padding=1)
        self.norm = nn.GroupNorm(2, 4)
        self.fc = nn.Linear(4 * 8, 3)

    def forward(self, x):
        h = F.relu(self.norm(self.conv(x)))
        return self.fc(h.flatten(1))


@torch.compile(backend="aot_eager")
def penalised(out, y, weight):
    return F.cross_entropy(out, y) + 1e-2 * weight.square().sum()


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(6)
    net = ConvNet()
    model = torch.compile(DDP(net), backend="aot_eager")
    opt = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    gen = torch.Generator().manual_seed(4)
    for step in range(3):
        x, y = torch.randn(8, 2, 8, generator=gen), torch.randint(3, (8,), generator=gen)
        x, y = x.chunk(world)[rank], y.chunk(world)[rank]
        loss = penalised(model(x), y, net.fc.weight)
        opt.zero_grad()
        loss.backward()
        opt.step()
        avg = loss.detach().clone()
        dist.all_reduce(avg)
        if rank == 0:
            print(step, f"{avg.item() / world:.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
