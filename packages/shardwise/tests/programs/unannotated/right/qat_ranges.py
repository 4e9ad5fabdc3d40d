# Quantisation-aware training under DDP: the observers' ranges are the extremes over all ranks. mesh: dp=2
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP


class FakeQuant(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, scale):
        ctx.save_for_backward(x, scale)
        return (x / scale).round().clamp(-127, 127) * scale

    @staticmethod
    def backward(ctx, g):
        x, scale = ctx.saved_tensors
        return g * (x.abs() <= 127 * scale), None


class Observer(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("amax", torch.tensor(0.0))

    def forward(self, x):
        if self.training:
            now = x.detach().abs().max()
            dist.all_reduce(now, op=dist.ReduceOp.MAX)
            self.amax.copy_(torch.where(self.amax > 0, 0.9 * self.amax + 0.1 * now, now))
        return FakeQuant.apply(x, self.amax / 127)


class QLinear(nn.Linear):
    def __init__(self, *args):
        super().__init__(*args)
        self.observe = Observer()

    def forward(self, x):
        w = FakeQuant.apply(self.weight, self.weight.detach().abs().amax(1, keepdim=True) / 127)
        return F.linear(self.observe(x), w, self.bias)


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(2)
    model = DDP(nn.Sequential(QLinear(6, 16), nn.ReLU(), QLinear(16, 3)), broadcast_buffers=False)
    opt = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    xs, ys = torch.randn(4, 8, 6), torch.randint(0, 3, (4, 8))
    for x, y in zip(xs, ys):
        n = 8 // world
        x, y = x[rank * n : rank * n + n], y[rank * n : rank * n + n]
        opt.zero_grad()
        F.cross_entropy(model(x), y).backward()
        opt.step()
    dist.destroy_process_group()


main()
