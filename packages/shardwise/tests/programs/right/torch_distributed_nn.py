"""torch.distributed.nn's differentiable collectives: what they send and give is read off their own calls."""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.nn.functional import all_gather, all_reduce

import shardwise as spmd
from shardwise import P, R, S, V

dist.init_process_group("nccl")
mesh = init_device_mesh("cuda", (8,), mesh_dim_names=("dp",))
group = mesh.get_group("dp")

with spmd.set_current_mesh(mesh):
    weight = spmd.assert_type(torch.randn(8, 4, requires_grad=True), {"dp": R})
    x = spmd.assert_type(torch.randn(6, 8), {"dp": S(0)})
    h = x @ weight
    mean = all_reduce(spmd.reinterpret(h.mean(0), "dp", src=V, dst=P), group=group) / dist.get_world_size()
    h = F.normalize(h - mean, dim=-1)
    everything = torch.cat(all_gather(h, group=group))
    loss = F.cross_entropy(h @ everything.T, torch.arange(6) + spmd.Scalar(6 * dist.get_rank(), {"dp": V}))
    spmd.reinterpret(loss / dist.get_world_size(), "dp", src=V, dst=P).backward()
