# Sequence-parallel linear whose backward overlaps the reduce-scatter with the weight's gradient. mesh: tp=2
import torch
import torch.distributed as dist
from torch import nn


class GatheredLinear(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(x, weight)
        total = x.new_empty(x.shape[0] * dist.get_world_size(), x.shape[1])
        dist.all_gather_into_tensor(total, x)
        return total @ weight.T

    @staticmethod
    def backward(ctx, grad):
        x, weight = ctx.saved_tensors
        total = x.new_empty(x.shape[0] * dist.get_world_size(), x.shape[1])
        gathering = dist.all_gather_into_tensor(total, x, async_op=True)
        grad_total = grad @ weight
        gathering.wait()
        grad_x = torch.empty_like(x)
        scattering = dist.reduce_scatter_tensor(grad_x, grad_total, async_op=True)
        grad_weight = grad.T @ total
        scattering.wait()
        return grad_x, grad_weight


class Scatter(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        out = x.new_empty(x.shape[0] // dist.get_world_size(), x.shape[1])
        dist.reduce_scatter_tensor(out, x.contiguous())
        return out

    @staticmethod
    def backward(ctx, grad):
        out = grad.new_empty(grad.shape[0] * dist.get_world_size(), grad.shape[1])
        dist.all_gather_into_tensor(out, grad.contiguous())
        return out


class MLP(nn.Module):
    def __init__(self, dim, hidden):
        super().__init__()
        rank, world = dist.get_rank(), dist.get_world_size()
        self.up = nn.Parameter((torch.randn(hidden, dim) / dim).chunk(world, 0)[rank].clone())
        self.down = nn.Parameter((torch.randn(dim, hidden) / hidden).chunk(world, 1)[rank].clone())

    def forward(self, x):
        return Scatter.apply(torch.tanh(GatheredLinear.apply(x, self.up)) @ self.down.T)


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    model = nn.Sequential(MLP(6, 8), MLP(6, 8))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x = torch.randn(8, 6)
    for _ in range(2):
        loss = (model(x.chunk(world)[rank].contiguous()) - 1).square().sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
