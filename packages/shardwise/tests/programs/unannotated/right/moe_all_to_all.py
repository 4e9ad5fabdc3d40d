# Experts on different ranks: tokens are sent to them and back by all_to_all_single. mesh: ep=2
import torch
import torch.distributed as dist
from torch import nn

EXPERTS = 4
CAPACITY = 8


class AllToAll(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        out = torch.empty_like(x)
        dist.all_to_all_single(out, x.contiguous())
        return out

    @staticmethod
    def backward(ctx, grad):
        out = torch.empty_like(grad)
        dist.all_to_all_single(out, grad.contiguous())
        return out


class MoE(nn.Module):
    def __init__(self, dim):
        super().__init__()
        rank, self.world = dist.get_rank(), dist.get_world_size()
        self.router = nn.Linear(dim, EXPERTS, bias=False)
        experts = [nn.Linear(dim, dim) for _ in range(EXPERTS)]
        self.local = EXPERTS // self.world
        self.experts = nn.ModuleList(experts[rank * self.local : (rank + 1) * self.local])

    def forward(self, x):
        weight, chosen = self.router(x).softmax(-1).max(-1)
        one_hot = nn.functional.one_hot(chosen, EXPERTS)
        position = (one_hot.cumsum(0) * one_hot).sum(-1) - 1
        slots = x.new_zeros(EXPERTS, CAPACITY, x.shape[-1]).index_put((chosen, position), x)
        sent = AllToAll.apply(slots).view(self.world, self.local, CAPACITY, -1)
        done = [torch.relu(expert(sent[:, i])) for i, expert in enumerate(self.experts)]
        back = AllToAll.apply(torch.stack(done, 1).flatten(0, 1))
        return x + weight[:, None] * back[chosen, position]


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 6), MoE(6), nn.Linear(6, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x = torch.randn(8, 5)
    for _ in range(2):
        loss = model(x.chunk(world)[rank]).square().mean() / world
        optimizer.zero_grad()
        loss.backward()
        for name, p in model.named_parameters():
            if "experts" not in name:
                dist.all_reduce(p.grad)
        optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
