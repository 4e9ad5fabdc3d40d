"""A replicated parameter's gradient is a pending sum over dp: its norm, its square, its clamp need the sum first."""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import init_device_mesh

import shardwise as spmd
from shardwise import P, R, S, V

dist.init_process_group("nccl")
mesh = init_device_mesh("cuda", (8,), mesh_dim_names=("dp",))

with spmd.set_current_mesh(mesh):
    model = nn.Linear(8, 4)
    spmd.assert_type(list(model.parameters()), {"dp": R})
    x = spmd.assert_type(torch.randn(4, 8), {"dp": S(0)})
    loss = spmd.reinterpret(F.softplus(model(x)).mean(), "dp", src=V, dst=P)
    weight_grad, bias_grad = torch.autograd.grad(loss, list(model.parameters()))
    norm = weight_grad.norm()  # SW112
    second_moment = torch.zeros_like(model.bias).addcmul_(bias_grad, bias_grad, value=0.01)  # SW111
    clipped = bias_grad.clamp(-1, 1)  # SW112
    weight_grad = spmd.all_reduce(weight_grad, "dp", src=P, dst=R)
    norm = weight_grad.norm()
