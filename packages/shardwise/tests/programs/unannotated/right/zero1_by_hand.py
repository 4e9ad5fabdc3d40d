# ZeRO-1 by hand: flat gradients reduce-scattered, a slice stepped, parameters gathered. mesh: dp=2
import torch
import torch.distributed as dist
from torch import nn


class ShardedSGD:
    def __init__(self, model, lr):
        self.parameters = list(model.parameters())
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        flat = torch.cat([p.detach().flatten() for p in self.parameters])
        self.length = -(-flat.numel() // self.world)
        self.flat = torch.nn.functional.pad(flat, (0, self.length * self.world - flat.numel()))
        self.part = self.flat.chunk(self.world)[self.rank].clone()
        self.inner = torch.optim.SGD([self.part], lr=lr, momentum=0.9)

    def step(self):
        grads = torch.cat([p.grad.flatten() for p in self.parameters])
        grads = torch.nn.functional.pad(grads, (0, self.flat.numel() - grads.numel()))
        own = torch.empty(self.length)
        dist.reduce_scatter_tensor(own, grads)
        self.part.grad = own / self.world
        self.inner.step()
        dist.all_gather_into_tensor(self.flat, self.part.detach())
        at = 0
        for p in self.parameters:
            p.data.copy_(self.flat[at : at + p.numel()].view_as(p))
            p.grad = None
            at += p.numel()


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 7), nn.Tanh(), nn.Linear(7, 1))
    optimizer = ShardedSGD(model, lr=0.1)
    x = torch.randn(8, 4)
    for _ in range(2):
        loss = model(x.chunk(world)[rank]).square().mean()
        loss.backward()
        optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
