# Barlow twins: the correlation over all ranks' samples, standardised by sums. mesh: dp=2
import torch
import torch.distributed as dist
import torch.nn as nn

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()


class Sum(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        x = x.contiguous().clone()
        dist.all_reduce(x)
        return x

    @staticmethod
    def backward(ctx, grad):
        grad = grad.contiguous().clone()
        dist.all_reduce(grad)
        return grad


def standard(z, n):
    mean = Sum.apply(z.sum(0)) / n
    var = Sum.apply((z - mean).square().sum(0)) / n
    return (z - mean) / (var + 1e-4).sqrt()


torch.manual_seed(0)
model = nn.Sequential(nn.Linear(6, 10), nn.ReLU(), nn.Linear(10, 4))
opt = torch.optim.SGD(model.parameters(), lr=0.05)
g = torch.Generator().manual_seed(1)
for _ in range(3):
    x = torch.randn(12, 6, generator=g)
    a, b = x + 0.1 * torch.randn(12, 6, generator=g), x + 0.1 * torch.randn(12, 6, generator=g)
    a, b = model(a.chunk(world)[rank]), model(b.chunk(world)[rank])
    n = len(a) * world
    c = Sum.apply(standard(a, n).t() @ standard(b, n)) / n
    loss = (c.diagonal() - 1).square().sum() + 0.05 * (c - torch.diag(c.diagonal())).square().sum()
    opt.zero_grad()
    loss.backward()
    for p in model.parameters():
        dist.all_reduce(p.grad)
        p.grad /= world
    opt.step()
print(
    "RESULT", torch.cat([p.detach().flatten() for p in model.parameters()] + [loss.detach()[None]]).abs().sum().item()
)
dist.destroy_process_group()
