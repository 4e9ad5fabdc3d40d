"""Experts on shards of different lengths: cut by split sizes, exchanged and brought back; a mean by global count."""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh

import shardwise as spmd
from shardwise import P, R, S

dist.init_process_group("nccl")
mesh = init_device_mesh("cuda", (8,), mesh_dim_names=("ep",))
LENGTHS = [9, 7, 5, 4, 3, 2, 1, 1]

with spmd.set_current_mesh(mesh):
    rank = mesh.get_local_rank()
    packed = spmd.assert_type(torch.randn(sum(LENGTHS), 16), {"ep": R})
    target = spmd.assert_type(torch.randn(sum(LENGTHS), 16), {"ep": R})
    up = spmd.assert_type(torch.randn(32, 16, requires_grad=True), {"ep": R})
    down = spmd.assert_type(torch.randn(16, 32, requires_grad=True), {"ep": R})

    x = spmd.convert(packed, "ep", src=R, dst=S(0), split_sizes=LENGTHS)
    wanted = spmd.convert(target, "ep", src=R, dst=S(0), split_sizes=LENGTHS)
    scale = x.pow(2).mean(-1, keepdim=True).add(1e-6).rsqrt()
    heads = (x * scale).view(x.shape[0], -1, 4).flatten(1)

    sent = [heads.shape[0] // 8 + (to < heads.shape[0] % 8) for to in range(8)]
    received = [LENGTHS[source] // 8 + (rank < LENGTHS[source] % 8) for source in range(8)]
    rows = spmd.all_to_all(heads, "ep", src=S(0), dst=S(0), input_split_sizes=sent, output_split_sizes=received)
    rows = F.linear(F.silu(F.linear(rows, up)), down)
    back = spmd.all_to_all(rows, "ep", src=S(0), dst=S(0), input_split_sizes=received, output_split_sizes=sent)

    error = (x + back - wanted).square()
    loss = spmd.mean(error, count=packed.numel(), out_partial_axes="ep")
    loss.backward()
    everything = spmd.all_gather(back.detach(), "ep", src=S(0), dst=R, split_sizes=LENGTHS)
    total = spmd.all_reduce(loss.detach(), "ep", src=P, dst=R)
    print(total.item(), everything.shape)
