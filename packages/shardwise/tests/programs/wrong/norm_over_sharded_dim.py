# unseen: local types do not know which dim a varying tensor is split over; that is what global types are for
"""A norm over a feature dim that is split over tp: every rank normalises by its own piece."""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh

import shardwise as spmd
from shardwise import R, S

dist.init_process_group("nccl")
mesh = init_device_mesh("cuda", (2, 4), mesh_dim_names=("dp", "tp"))

with spmd.set_current_mesh(mesh):
    q = spmd.assert_type(torch.randn(2, 8, 16), {"dp": S(0), "tp": S(2)})
    weight = spmd.assert_type(torch.ones(16), {"dp": R, "tp": S(0)})
    q = F.rms_norm(q, (16,), weight)
