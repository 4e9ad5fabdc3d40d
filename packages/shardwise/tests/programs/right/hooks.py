"""Hooks of every kind: on tensors, on modules forward and backward, after accumulation, on the optimizer."""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh

import shardwise as spmd
from shardwise import P, R, S, V

dist.init_process_group("nccl")
mesh = init_device_mesh("cuda", (8,), mesh_dim_names=("dp",))
activations = {}


def remember(module, inputs, output):
    activations[module] = output.detach().abs().mean()


def scale_input(module, inputs):
    return (inputs[0] * 2,)


@spmd.register_local_backward_hook
def watch(module, gradient_in, gradient_out):
    activations["gradient"] = gradient_out[0].norm()


def reduce_when_ready(parameter):
    dist.all_reduce(parameter.grad)
    parameter.grad.div_(dist.get_world_size())


with spmd.set_current_mesh(mesh):
    model = nn.Sequential(nn.Linear(8, 16), nn.SiLU(), nn.Linear(16, 4))
    spmd.assert_type(list(model.parameters()), {"dp": R})
    handles = [model[0].register_forward_hook(remember), model[1].register_forward_pre_hook(scale_input)]
    handles.append(model[2].register_full_backward_hook(watch))
    for parameter in model.parameters():
        handles.append(parameter.register_post_accumulate_grad_hook(reduce_when_ready))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    optimizer.register_step_post_hook(lambda *_: activations.clear())
    x = spmd.assert_type(torch.randn(4, 8), {"dp": S(0)})
    hidden = model[0](x)
    hidden.register_hook(lambda gradient: gradient.clamp(-1, 1))
    hidden.retain_grad()
    out = model[2](model[1](hidden))
    loss = spmd.reinterpret(out.square().mean(), "dp", src=V, dst=P)
    loss.backward()
    print(hidden.grad.norm().item(), {str(key)[:6]: float(value) for key, value in activations.items()})
    optimizer.step()
    for handle in handles:
        handle.remove()
