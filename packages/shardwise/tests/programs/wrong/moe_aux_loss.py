"""The load-balancing loss multiplies two averages that are each still pending over the data axis."""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import init_device_mesh

import shardwise as spmd
from shardwise import P, R, S, V

dist.init_process_group("nccl")
mesh = init_device_mesh("cuda", (8,), mesh_dim_names=("dp",))
EXPERTS = 4

with spmd.set_current_mesh(mesh):
    router = nn.Linear(8, EXPERTS, bias=False)
    spmd.assert_type(router.weight, {"dp": R})
    x = spmd.assert_type(torch.randn(16, 8), {"dp": S(0)})
    scores = router(x).softmax(-1)
    chosen = scores.topk(2, -1).indices
    fraction = F.one_hot(chosen, EXPERTS).float().mean((0, 1)) / dist.get_world_size()
    fraction = spmd.reinterpret(fraction, "dp", src=V, dst=P)
    weight = spmd.reinterpret(scores.mean(0) / dist.get_world_size(), "dp", src=V, dst=P)
    loss = EXPERTS * (fraction * weight).sum()  # SW111
    loss = EXPERTS * torch.dot(fraction, weight)  # SW111
    fraction = spmd.all_reduce(fraction, "dp", src=P, dst=R)
    (EXPERTS * torch.dot(fraction, weight)).backward()
