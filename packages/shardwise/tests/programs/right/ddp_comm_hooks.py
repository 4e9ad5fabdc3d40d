"""Communication hooks of DDP: what a hook of the program does to the buckets is its own business."""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.nn.parallel import DistributedDataParallel

import shardwise as spmd
from shardwise import P, R, S, V

dist.init_process_group("nccl")
mesh = init_device_mesh("cuda", (8,), mesh_dim_names=("dp",))


def in_half(process_group, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    half = bucket.buffer().to(torch.float16).div_(process_group.size())
    dist.all_reduce(half, group=process_group)
    bucket.buffer().copy_(half)
    future = torch.futures.Future()
    future.set_result(bucket.buffer())
    return future


with spmd.set_current_mesh(mesh):
    model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 4))
    spmd.assert_type(list(model.parameters()), {"dp": R})
    group = mesh.get_group("dp")
    ddp = DistributedDataParallel(model, process_group=group, gradient_as_bucket_view=True)
    ddp.register_comm_hook(group, in_half)
    optimizer = torch.optim.AdamW(ddp.parameters(), lr=1e-3)
    for step in range(3):
        x = spmd.assert_type(torch.randn(4, 8), {"dp": S(0)})
        spmd.reinterpret(ddp(x).square().mean(), "dp", src=V, dst=P).backward()
        nn.utils.clip_grad_norm_(ddp.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=step > 0)
