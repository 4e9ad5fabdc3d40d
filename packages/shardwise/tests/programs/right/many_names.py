"""One axis under several names: process groups, mesh dims, flattened axes, dict meshes, aliases, nested meshes."""

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

import shardwise as spmd
from shardwise import I, MeshAxis, P, R, S, V

dist.init_process_group("nccl")
mesh = init_device_mesh("cuda", (2, 2, 2), mesh_dim_names=("dp", "cp", "tp"))
dp_cp = mesh["dp", "cp"]._flatten("dp_cp")
tp_group = mesh.get_group("tp")
tensor, data = MeshAxis.of(tp_group), MeshAxis.of(dp_cp.get_group())


def step(x, weight):
    y = spmd.linear(x, weight, out_partial_axes=tensor)
    return spmd.all_reduce(y, tp_group, src=P, dst=R)


with spmd.set_current_mesh(mesh):
    weight = spmd.assert_type(torch.randn(8, 4), {"dp": R, "cp": R, tp_group: S(1)})
    x = spmd.assert_type(torch.randn(2, 4), {"dp": V, mesh.get_group("cp"): V, tensor: S(1)})
    y = step(x, weight)
    total = spmd.all_reduce(y.sum(), dp_cp.get_group(), src=V, dst=R)
    print(total.item())

with spmd.set_current_mesh({"data": data, "model": tensor}):
    weight = spmd.assert_type(torch.randn(8, 4), {"data": R, "model": S(1)})
    x = spmd.assert_type(torch.randn(2, 4), {"data": S(0), tp_group: S(1)})
    y = step(x, weight)
    y = spmd.convert(spmd.convert(y, tp_group, src=R, dst=I, expert_mode=True), tp_group, src=I, dst=R)
    print(y.shape)

with spmd.set_current_mesh(frozenset({data, tensor})):
    x = spmd.assert_type(torch.randn(2, 4), R)
    print(x.sum().item())

sub = mesh["tp"]
with spmd.set_current_mesh(sub):
    z = spmd.assert_type(torch.randn(2, 4), {"tp": I})
    print((z @ z.T).trace().item())
