"""Noise added to an image that tensor parallel ranks share, masks and gumbel numbers drawn for replicated logits."""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh

import shardwise as spmd
from shardwise import R, S

dist.init_process_group("nccl")
mesh = init_device_mesh("cuda", (2, 4), mesh_dim_names=("dp", "tp"))

with spmd.set_current_mesh(mesh):
    images = spmd.assert_type(torch.randn(2, 3, 8, 8), {"dp": S(0), "tp": R})
    noise = torch.randn_like(images)  # SW121
    noisy = images + noise
    drop = torch.bernoulli(torch.full_like(images, 0.1))
    router = spmd.assert_type(torch.randn(2, 8), {"dp": S(0), "tp": R})
    probabilities = F.gumbel_softmax(router, hard=True)  # SW121
    token = torch.multinomial(router.softmax(-1), 1)  # SW121
