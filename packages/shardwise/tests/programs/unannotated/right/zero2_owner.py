# An optimizer that has each rank step its own parameters; gradients are reduced to those ranks alone. mesh: dp=2
import torch
import torch.distributed as dist
from torch import nn


class Sharded(torch.optim.Optimizer):
    """Shares out the parameters, in the manner of fairscale: an optimizer inside of it steps those of this rank."""

    def __init__(self, params, inner, **options):
        super().__init__(params, {})
        self.owner = {p: at % dist.get_world_size() for at, p in enumerate(self.param_groups[0]["params"])}
        self.inner = inner([p for p, owner in self.owner.items() if owner == dist.get_rank()], **options)

    def step(self, closure=None):
        self.inner.step()
        with torch.no_grad():
            for parameter, owner in self.owner.items():
                dist.broadcast(parameter, src=owner)


class Reduced(nn.Module):
    """Averages every gradient on the rank that steps its parameter."""

    def __init__(self, module, optimizer):
        super().__init__()
        self.module, self.owner = module, optimizer.owner
        for parameter in module.parameters():
            parameter.register_post_accumulate_grad_hook(self.reduce)

    def reduce(self, parameter):
        parameter.grad /= dist.get_world_size()
        dist.reduce(parameter.grad, dst=self.owner[parameter])

    def forward(self, x):
        return self.module(x)


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 12), nn.Tanh(), nn.Linear(12, 4), nn.Tanh(), nn.Linear(4, 1))
    optimizer = Sharded(model.parameters(), torch.optim.AdamW, lr=0.01)
    model = Reduced(model, optimizer)
    x = torch.randn(3, 8, 8)
    for step in range(3):
        loss = model(x[step].chunk(world)[rank]).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
