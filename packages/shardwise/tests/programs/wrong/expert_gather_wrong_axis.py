"""Expert outputs are combined over the wrong mesh: the rank regions do not match."""

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

import shardwise as spmd
from shardwise import R, S, V

dist.init_process_group("nccl")
dense = init_device_mesh("cuda", (2, 4), mesh_dim_names=("dp", "tp"))
sparse = init_device_mesh("cuda", (4, 2), mesh_dim_names=("edp", "ep"))

with spmd.set_current_mesh(dense):
    x = spmd.assert_type(torch.randn(8, 16), {"dp": S(0), "tp": R})
    y = spmd.reinterpret_mesh(x, {"edp": V, "ep": V})  # SW902
    y = spmd.reinterpret_mesh(x, sparse)  # SW133
    with spmd.set_current_mesh(sparse):
        weight = spmd.assert_type(torch.randn(16, 16), {"edp": R, "ep": S(0)})
        y = x @ weight  # SW133
