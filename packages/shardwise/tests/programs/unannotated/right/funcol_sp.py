# Tensor and sequence parallelism with the functional collectives that autograd knows. mesh: tp=2
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed._functional_collectives import all_gather_tensor_autograd, reduce_scatter_tensor_autograd


class SPBlock(nn.Module):
    def __init__(self, dim):
        super().__init__()
        world, rank = dist.get_world_size(), dist.get_rank()
        self.group = dist.group.WORLD
        self.norm = nn.LayerNorm(dim)
        w1, w2 = torch.randn(4 * dim, dim) * 0.15, torch.randn(dim, 4 * dim) * 0.15
        self.w1 = nn.Parameter(w1.chunk(world, 0)[rank].clone())
        self.w2 = nn.Parameter(w2.chunk(world, 1)[rank].clone())

    def forward(self, x):
        y = all_gather_tensor_autograd(self.norm(x), gather_dim=0, group=self.group)
        y = F.gelu(y @ self.w1.t()) @ self.w2.t()
        return x + reduce_scatter_tensor_autograd(y, "sum", scatter_dim=0, group=self.group)


class Net(nn.Module):
    def __init__(self, dim=16):
        super().__init__()
        self.blocks = nn.ModuleList(SPBlock(dim) for _ in range(2))
        self.head = nn.Linear(dim, 3)

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(5)
    net = Net()
    sequence_parallel = [p for n, p in net.named_parameters() if "norm" in n or "head" in n]
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    gen = torch.Generator().manual_seed(6)
    for step in range(3):
        x, y = torch.randn(8, 2, 16, generator=gen), torch.randint(0, 3, (8, 2), generator=gen)
        local_x, local_y = x.chunk(world, 0)[rank], y.chunk(world, 0)[rank]
        logits = net(local_x)
        loss = F.cross_entropy(logits.flatten(0, 1), local_y.flatten(), reduction="sum") / y.numel()
        optimizer.zero_grad()
        loss.backward()
        for p in sequence_parallel:
            dist.all_reduce(p.grad)
        optimizer.step()
        log = loss.detach().clone()
        dist.all_reduce(log)
        if rank == 0:
            print(f"step {step} loss {log.item():.6f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
