"""torch.func: per-sample gradients with vmap and grad, functional_call, jacobians, and a gradient penalty."""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.func import functional_call, grad, grad_and_value, jacrev, vjp, vmap

import shardwise as spmd
from shardwise import P, R, S, V

dist.init_process_group("nccl")
mesh = init_device_mesh("cuda", (8,), mesh_dim_names=("dp",))

with spmd.set_current_mesh(mesh):
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
    spmd.assert_type(list(model.parameters()), {"dp": R})
    parameters = {name: parameter.detach() for name, parameter in model.named_parameters()}
    x = spmd.assert_type(torch.randn(6, 4), {"dp": S(0)})
    y = spmd.assert_type(torch.randn(6, 1), {"dp": S(0)})

    def loss_of_one(parameters, x, y):
        return F.mse_loss(functional_call(model, parameters, (x.unsqueeze(0),)), y.unsqueeze(0))

    per_sample = vmap(grad(loss_of_one), in_dims=(None, 0, 0))(parameters, x, y)
    norms = torch.stack([g.flatten(1).norm(dim=1) for g in per_sample.values()]).norm(dim=0)
    scale = (1.0 / norms).clamp(max=1.0)
    private = {name: torch.einsum("b,b...->...", scale, g) for name, g in per_sample.items()}
    summed = {name: spmd.all_reduce(g, "dp", src=V, dst=R) for name, g in private.items()}
    values = vmap(grad_and_value(lambda v: v.square().sum()))(x)[1]
    print(values.shape, sorted(summed), jacrev(torch.sin)(torch.ones(2)).shape)
    out, pull = vjp(lambda v: functional_call(model, parameters, (v,)), x)
    pull(torch.ones_like(out))

    x.requires_grad_()
    score = model(x).sum()
    (slope,) = torch.autograd.grad(score, x, torch.ones_like(score), create_graph=True)
    penalty = (slope.norm(dim=1) - 1).square().mean()
    total = spmd.reinterpret(score / 6 + 10 * penalty, "dp", src=V, dst=P) / dist.get_world_size()
    total.backward()
