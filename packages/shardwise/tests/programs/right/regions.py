"""Parts that are not checked op by op: no_typecheck with declared types, local_map, local, nested typecheck."""

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

import shardwise as spmd
from shardwise import P, PartitionSpec, R, S, V
from shardwise.checker import typecheck

dist.init_process_group("nccl")
mesh = init_device_mesh("cuda", (2, 4), mesh_dim_names=("dp", "tp"))


@spmd.no_typecheck(in_types=({"dp": V, "tp": V},), out_types={"dp": V, "tp": V})
def ring_shift(x):
    received = torch.empty_like(x)
    rank, size = mesh.get_local_rank("tp"), 4
    group = mesh.get_group("tp")
    sends = dist.P2POp(dist.isend, x, dist.get_global_rank(group, (rank + 1) % size), group)
    receives = dist.P2POp(dist.irecv, received, dist.get_global_rank(group, (rank - 1) % size), group)
    for request in dist.batch_isend_irecv([sends, receives]):
        request.wait()
    return received


@spmd.local_map(in_types=({"dp": S(0), "tp": S(1)},), out_types={"dp": S(0), "tp": P})
def own_sum(x):
    return spmd.reinterpret(x.sum(1), "tp", src=V, dst=P)


@spmd.register_no_typecheck
def statistics(x):
    return float(x.abs().max())


@torch.no_grad()
def main():
    x = spmd.assert_type(torch.randn(4, 8), {"dp": S(0), "tp": S(1)})
    total = x
    for _ in range(3):
        x = ring_shift(x)
        total = total + x
    y = spmd.all_reduce(own_sum(total), "tp", src=P, dst=R)
    with typecheck(strict_mode="permissive"):
        y = y + torch.randn(4)
    with spmd.no_typecheck():
        scale = torch.randn(4) + y
    scale = spmd.assert_type(scale.clone(), {"dp": V, "tp": R}, PartitionSpec("dp"))
    with spmd.local():
        z = spmd.assert_type((scale * y).relu(), {"dp": V, "tp": R})
    with typecheck("strict", local=True):
        print(statistics(z), spmd.typeof(z))


with spmd.set_current_mesh(mesh), typecheck():
    main()
