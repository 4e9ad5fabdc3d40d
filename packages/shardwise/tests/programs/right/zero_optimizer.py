"""ZeRO by hand: gradients are reduce-scattered, every rank updates its piece of the parameters, then gathers them."""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh

import shardwise as spmd
from shardwise import P, R, S, V

dist.init_process_group("nccl")
mesh = init_device_mesh("cuda", (8,), mesh_dim_names=("dp",))
size = dist.get_world_size()


class ShardedAdam:
    def __init__(self, parameters, lr=1e-3, betas=(0.9, 0.99)):
        self.parameters, self.lr, self.betas, self.steps = list(parameters), lr, betas, 0
        count = sum(parameter.numel() for parameter in self.parameters)
        self.padding = -count % size
        piece = (count + self.padding) // size
        self.mean, self.var = torch.zeros(piece), torch.zeros(piece)

    def flat(self, tensors):
        return torch.cat([*(tensor.flatten() for tensor in tensors), torch.zeros(self.padding)])

    @torch.no_grad()
    def step(self, gradients):
        self.steps += 1
        gradient = spmd.reduce_scatter(self.flat(gradients), "dp", src=P, dst=S(0)) / size
        norm = spmd.all_reduce(gradient.square().sum(), "dp", src=V, dst=R).sqrt()
        gradient = gradient * (1.0 / (norm + 1e-6)).clamp(max=1.0)
        self.mean.mul_(self.betas[0]).add_(gradient, alpha=1 - self.betas[0])
        self.var.mul_(self.betas[1]).addcmul_(gradient, gradient, value=1 - self.betas[1])
        mean = self.mean / (1 - self.betas[0] ** self.steps)
        var = self.var / (1 - self.betas[1] ** self.steps)
        own = spmd.convert(self.flat(self.parameters), "dp", src=R, dst=S(0))
        own = torch.addcdiv(own, mean, var.sqrt().add_(1e-8), value=-self.lr)
        full = spmd.all_gather(own, "dp", src=S(0), dst=R)
        pieces = full[: len(full) - self.padding].split([parameter.numel() for parameter in self.parameters])
        for parameter, piece in zip(self.parameters, pieces):
            parameter.copy_(piece.view_as(parameter))
        return norm


with spmd.set_current_mesh(mesh):
    model = nn.Sequential(nn.Linear(5, 7), nn.ReLU(), nn.Linear(7, 3))
    spmd.assert_type(list(model.parameters()), {"dp": R})
    optimizer = ShardedAdam(model.parameters())
    for _ in range(3):
        x = spmd.assert_type(torch.randn(4, 5), {"dp": S(0)})
        loss = spmd.reinterpret(model(x).square().mean(), "dp", src=V, dst=P)
        gradients = torch.autograd.grad(loss, list(model.parameters()))
        print(f"norm {optimizer.step(gradients):.3f}")
