"""Context parallelism: each rank has a piece of the sequence and gathers all keys and values; tp and dp beside it."""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import init_device_mesh

import shardwise as spmd
from shardwise import P, R, S, Scalar, V

dist.init_process_group("nccl")
mesh = init_device_mesh("cuda", (2, 2, 2), mesh_dim_names=("dp", "cp", "tp"))
HEADS, HEAD, WIDTH = 2, 8, 32
TYPE = {"dp": R, "cp": R}


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.q = nn.Linear(WIDTH, HEADS * HEAD, bias=False)
        self.k = nn.Linear(WIDTH, HEADS * HEAD, bias=False)
        self.v = nn.Linear(WIDTH, HEADS * HEAD, bias=False)
        self.o = nn.Linear(HEADS * HEAD, WIDTH, bias=False)
        for linear in (self.q, self.k, self.v):
            spmd.assert_type(linear.weight, {**TYPE, "tp": S(0)})
        spmd.assert_type(self.o.weight, {**TYPE, "tp": S(1)})

    def heads(self, x):
        return x.unflatten(-1, (HEADS, HEAD)).movedim(2, 1)

    def forward(self, x):
        q, k, v = self.heads(self.q(x)), self.heads(self.k(x)), self.heads(self.v(x))
        k = spmd.all_gather(k.contiguous(), "cp", src=S(2), dst=R)
        v = spmd.all_gather(v.contiguous(), "cp", src=S(2), dst=R)
        length = q.shape[2]
        start = Scalar(mesh.get_local_rank("cp") * length, {"dp": R, "cp": V, "tp": R})
        rows = torch.arange(length) + start
        mask = rows[:, None] >= torch.arange(k.shape[2])[None, :]
        o = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return spmd.all_reduce(self.o(o.movedim(1, 2).flatten(2)), "tp", src=V, dst=R)


with spmd.set_current_mesh(mesh):
    attention = Attention()
    x = spmd.assert_type(torch.randn(2, 8, WIDTH), {"dp": S(0), "cp": S(1), "tp": R})
    loss = attention(x).square().sum() / (2 * 16 * 2)
    for axis in ("dp", "cp"):
        loss = spmd.reinterpret(loss, axis, src=V, dst=P)
    spmd.convert(loss, "tp", src=R, dst=P).backward()
    flat = mesh["dp", "cp"]._flatten("dp_cp")
    for parameter in attention.parameters():
        dist.all_reduce(parameter.grad, group=flat.get_group())
