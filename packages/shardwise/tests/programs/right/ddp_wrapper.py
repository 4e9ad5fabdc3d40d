"""DistributedDataParallel owns the sum of the gradients; the program declares only its data and its loss."""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.nn.parallel import DistributedDataParallel

import shardwise as spmd
from shardwise import P, R, S, V

dist.init_process_group("nccl")
mesh = init_device_mesh("cuda", (8,), mesh_dim_names=("dp",))

with spmd.set_current_mesh(mesh):
    model = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.Tanh(), nn.Linear(16, 4))
    spmd.assert_type(list(model.parameters()), {"dp": R})
    ddp = DistributedDataParallel(model, process_group=mesh.get_group("dp"))
    optimizer = torch.optim.AdamW(ddp.parameters(), lr=1e-3)
    for step in range(4):
        x = spmd.assert_type(torch.randn(4, 8), {"dp": S(0)})
        target = spmd.assert_type(torch.randint(4, (4,)), {"dp": S(0)})
        with ddp.no_sync() if step % 2 == 0 else torch.enable_grad():
            loss = F.cross_entropy(ddp(x), target) / 2
            spmd.reinterpret(loss, "dp", src=V, dst=P).backward()
        if step % 2:
            nn.utils.clip_grad_norm_(ddp.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
    torch.save(ddp.module.state_dict(), "/dev/null")
    print(sum(parameter.numel() for parameter in ddp.parameters()))
