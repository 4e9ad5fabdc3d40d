"""bf16 weights with fp32 masters, loss scaling by hand, and narrow collectives with wide sums."""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import init_device_mesh

import shardwise as spmd
from shardwise import I, P, R, S, V

dist.init_process_group("nccl")
mesh = init_device_mesh("cuda", (2, 4), mesh_dim_names=("dp", "tp"))
WIDE = {"op_dtype": torch.float32}

with spmd.set_current_mesh(mesh):
    up = nn.Linear(16, 8, bias=False, dtype=torch.bfloat16)
    down = nn.Linear(8, 16, bias=False, dtype=torch.bfloat16)
    spmd.assert_type(up.weight, {"dp": R, "tp": S(0)})
    spmd.assert_type(down.weight, {"dp": R, "tp": S(1)})
    masters = [weight.detach().clone().float() for weight in (up.weight, down.weight)]
    scale = 1024.0
    for _ in range(2):
        x = spmd.assert_type(torch.randn(4, 16, dtype=torch.bfloat16), {"dp": S(0), "tp": I}).requires_grad_()
        h = spmd.convert(x, "tp", src=I, dst=R, backward_options=WIDE)
        h = F.gelu(up(h))
        y = spmd.linear(h, down.weight, out_partial_axes="tp")
        y = spmd.all_reduce(y, "tp", src=P, dst=I, op_dtype=torch.float32, out_dtype=torch.bfloat16)
        loss = (x + y).float().square().mean()
        (spmd.reinterpret(loss, "dp", src=V, dst=P) * scale).backward()
        gradients = [weight.grad.float() / scale for weight in (up.weight, down.weight)]
        found = torch.stack([gradient.isinf().any() | gradient.isnan().any() for gradient in gradients]).any()
        skip = spmd.assert_type(found.float().clone(), {"dp": V, "tp": V})
        dist.all_reduce(skip, op=dist.ReduceOp.MAX)
        if skip.item():
            scale /= 2
            continue
        for weight, master, gradient in zip((up.weight, down.weight), masters, gradients):
            dist.all_reduce(gradient, group=mesh.get_group("dp"))
            master.add_(gradient, alpha=-0.1)
            weight.data.copy_(master)
            weight.grad = None
