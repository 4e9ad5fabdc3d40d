# Adafactor's factored second moments of a weight whose rows are split. mesh: tp=2
import torch
import torch.distributed as dist
import torch.nn as nn


class Enter(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        grad = grad.contiguous().clone()
        dist.all_reduce(grad)
        return grad


class Leave(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        x = x.contiguous().clone()
        dist.all_reduce(x)
        return x

    @staticmethod
    def backward(ctx, grad):
        return grad


dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()

g = torch.Generator().manual_seed(1)
up = nn.Parameter(torch.randn(12, 6, generator=g).chunk(world)[rank].clone())
down = nn.Parameter(torch.randn(6, 12, generator=g).chunk(world, 1)[rank].clone())


def averaged(x):
    dist.all_reduce(x)
    return x / world


rows, cols = torch.zeros(len(up)), torch.zeros(6)
for _ in range(3):
    x, y = torch.randn(5, 6, generator=g), torch.randn(5, 6, generator=g)
    loss = (Leave.apply(torch.relu(Enter.apply(x) @ up.t()) @ down.t()) - y).square().mean()
    loss.backward()
    with torch.no_grad():
        squares = up.grad.square() + 1e-30
        rows.lerp_(squares.mean(1), 0.3)
        cols.lerp_(averaged(squares.mean(0)), 0.3)
        update = up.grad / (rows / averaged(rows.mean())).sqrt()[:, None] / cols.sqrt()
        size = averaged(update.square().mean()).sqrt()
        up -= 0.1 * update / size.clamp(min=1.0)
        down -= 0.1 * down.grad
        up.grad = down.grad = None
print("RESULT", loss.item())
dist.destroy_process_group()
