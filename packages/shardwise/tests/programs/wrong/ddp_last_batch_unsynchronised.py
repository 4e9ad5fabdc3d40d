"""The last micro-batch runs inside no_sync() too, so DDP never averages; then by hand what DDP has done; then a
parameter that DDP does not know of."""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.nn.parallel import DistributedDataParallel

import shardwise as spmd
from shardwise import P, R, S, V

dist.init_process_group("nccl")
mesh = init_device_mesh("cuda", (8,), mesh_dim_names=("dp",))

with spmd.set_current_mesh(mesh):
    model = nn.Linear(8, 4)
    spmd.assert_type(list(model.parameters()), {"dp": R})
    ddp = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1)

    def backward(extra=1.0):
        x = spmd.assert_type(torch.randn(4, 8), {"dp": S(0)})
        spmd.reinterpret((ddp(x) * extra).square().mean(), "dp", src=V, dst=P).backward()

    for _ in range(2):
        with ddp.no_sync():
            backward()
    optimizer.step()  # SW608
    optimizer.zero_grad()

    with ddp.no_sync():
        backward()
    backward()
    backward()
    optimizer.step()
    optimizer.zero_grad()

    backward()
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)  # SW605
    optimizer.zero_grad()

    temperature = spmd.assert_type(nn.Parameter(torch.ones(())), {"dp": R})
    optimizer.add_param_group({"params": [temperature]})
    backward(temperature)
    optimizer.step()  # SW608
