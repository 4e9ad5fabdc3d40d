"""A gated row-parallel layer multiplies two pending sums; another squares one."""

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

import shardwise as spmd
from shardwise import S

dist.init_process_group("nccl")
mesh = init_device_mesh("cuda", (8,), mesh_dim_names=("tp",))

with spmd.set_current_mesh(mesh):
    h = spmd.assert_type(torch.randn(2, 4), {"tp": S(1)})
    gate = spmd.assert_type(torch.randn(16, 4), {"tp": S(1)})
    up = spmd.assert_type(torch.randn(16, 4), {"tp": S(1)})
    a = spmd.linear(h, gate, out_partial_axes="tp")
    b = spmd.linear(h, up, out_partial_axes="tp")
    y = a * b  # SW111
    norm = torch.dot(a[0], a[0])  # SW111
    c = a.square()  # SW112
    c = a**2  # SW112
    c = a @ b.T  # SW111
    c = torch.einsum("bd,bd->b", a, b)  # SW111
    c = torch.addcmul(a, a, b)  # SW111
