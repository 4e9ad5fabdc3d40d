"""Each rank logs its own addend of the loss, and decides by it whether to stop."""

import torch
import torch.distributed as dist
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
    local = model(x).pow(2).mean() / dist.get_world_size()
    loss = spmd.reinterpret(local, "dp", src=V, dst=P)
    print(f"loss {loss.item():.3f}")  # SW115
    if loss > 10:  # SW112
        print("diverged")
    history = [float(loss)]  # SW115
    history += loss.detach().reshape(1).tolist()  # SW115
    if local < 0.5:  # SW116
        dist.barrier()
    while local.isnan():  # SW116
        break
    assert not local.isinf().any()  # SW116
    print(loss.detach().numpy().max())  # SW115
