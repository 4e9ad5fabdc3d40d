# ZeRO-2 by hand: gradients are reduced to their owner as they are made, owners step Adam and broadcast. mesh: dp=2
import torch
import torch.distributed as dist
from torch import nn


class Zero2:
    def __init__(self, model, lr):
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        self.params = list(model.parameters())
        self.owner = {p: i % self.world for i, p in enumerate(self.params)}
        self.works = []
        for p in self.params:
            p.register_post_accumulate_grad_hook(self.reduce)
        mine = [p for p in self.params if self.owner[p] == self.rank]
        self.inner = torch.optim.Adam(mine, lr=lr)

    def reduce(self, p):
        p.grad.div_(self.world)
        self.works.append((p, dist.reduce(p.grad, dst=self.owner[p], async_op=True)))

    def step(self):
        for p, work in self.works:
            work.wait()
            if self.owner[p] != self.rank:
                p.grad = None
        self.works.clear()
        self.inner.step()
        for p in self.params:
            dist.broadcast(p.data, src=self.owner[p])
            p.grad = None


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 1))
    opt = Zero2(net, lr=5e-3)
    gen = torch.Generator().manual_seed(1)
    for step in range(4):
        x = torch.randn(16, 6, generator=gen)
        y = x.sum(1, keepdim=True)
        x, y = x[rank::world], y[rank::world]
        loss = nn.functional.smooth_l1_loss(net(x), y)
        loss.backward()
        opt.step()
        shown = loss.detach()
        dist.reduce(shown, dst=0)
        if rank == 0:
            print(step, round(shown.item() / world, 4))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
