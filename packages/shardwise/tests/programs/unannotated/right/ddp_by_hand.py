# Data parallel by hand: rank 0's weights broadcast, gradients averaged in hooks, EMA of the weights. mesh: dp=2
import copy

import torch
import torch.distributed as dist
from torch import nn


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(rank)
    model = nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.LayerNorm(7), nn.Linear(7, 2))
    for parameter in model.parameters():
        dist.broadcast(parameter.data, src=0)
    ema = copy.deepcopy(model).requires_grad_(False)

    def average(parameter):
        parameter.grad.div_(world)
        dist.all_reduce(parameter.grad)

    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(average)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    data = torch.randn(2, 8, 5, generator=torch.Generator().manual_seed(7))
    for batch in data:
        x = batch.chunk(world)[rank]
        loss = model(x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            for slow, fast in zip(ema.parameters(), model.parameters()):
                slow.lerp_(fast, 0.1)
        total = loss.detach().clone()
        dist.all_reduce(total)
        if rank == 0:
            print(f"loss {total.item() / world:.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
