# An ensemble by vmap: each rank has some members, and the mean is over all. mesh: ep=2
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.func import functional_call, stack_module_state, vmap


class SumForward(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        x = x.clone()
        dist.all_reduce(x)
        return x

    @staticmethod
    def backward(ctx, g):
        return g


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(6)
    members = [nn.Sequential(nn.Linear(5, 7), nn.ReLU(), nn.Linear(7, 2)) for _ in range(4)]
    n = len(members) // world
    mine = members[rank * n : (rank + 1) * n]
    params, buffers = stack_module_state(mine)
    opt = torch.optim.SGD(params.values(), lr=0.5)

    def one(p, b, x):
        return functional_call(members[0], (p, b), (x,))

    xs, ys = torch.randn(3, 6, 5), torch.randn(3, 6, 2)
    for x, y in zip(xs, ys):
        outs = vmap(one, in_dims=(0, 0, None))(params, buffers, x)
        mean = SumForward.apply(outs.sum(0)) / len(members)
        loss = (mean - y).square().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
    dist.destroy_process_group()


main()
