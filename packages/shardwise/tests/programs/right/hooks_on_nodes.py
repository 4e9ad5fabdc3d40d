"""Gradients reduced or gathered in hooks on AccumulateGrad nodes, as wrappers of before the tensor hooks do."""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh

import shardwise as spmd
from shardwise import P, R, S, V

dist.init_process_group("nccl")
mesh = init_device_mesh("cuda", (8,), mesh_dim_names=("dp",))


def hook_every(model, hook):
    """Nodes of leaves live as long as somebody holds them."""
    nodes = [(p, p.expand_as(p).grad_fn.next_functions[0][0]) for p in model.parameters()]
    for parameter, node in nodes:
        node.register_hook(lambda *_, parameter=parameter: hook(parameter))
    return nodes


def reduce(parameter):
    dist.all_reduce(parameter.grad)
    parameter.grad.div_(dist.get_world_size())


def add_up(parameter):
    parameter.main_grad.add_(parameter.grad.data)
    parameter.grad = None


def build():
    model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 4))
    spmd.assert_type(list(model.parameters()), {"dp": R})
    return model


def backward(model):
    x = spmd.assert_type(torch.randn(4, 8), {"dp": S(0)})
    spmd.reinterpret(model(x).square().mean(), "dp", src=V, dst=P).backward()


with spmd.set_current_mesh(mesh):
    model = build()
    nodes = hook_every(model, reduce)
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(2):
        optimizer.zero_grad()
        backward(model)
        optimizer.step()

    model = build()
    buffer, at = torch.zeros(sum(parameter.numel() for parameter in model.parameters())), 0
    for parameter in model.parameters():
        parameter.main_grad = buffer[at : at + parameter.numel()].view(parameter.shape)
        at += parameter.numel()
    nodes = hook_every(model, add_up)
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(3):
        buffer.zero_()
        backward(model)
        backward(model)
        dist.all_reduce(buffer)
        for parameter in model.parameters():
            parameter.grad = parameter.main_grad
        optimizer.step()
        for parameter in model.parameters():
            parameter.grad = None
