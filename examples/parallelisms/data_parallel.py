"""Data parallelism by hand: unequal token counts per rank, two micro-batches per step, one sum of the gradients."""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from common import piece, start, whole
from torch import nn

import shardwise as spmd
from shardwise import P, R, S

mesh = start("dp", "tp")
BATCH, MICRO, CLASSES, WIDTH, IGNORED = 8, 2, 5, 6, -100

with spmd.set_current_mesh(mesh):
    model = nn.Sequential(nn.Linear(WIDTH, 16), nn.Tanh(), nn.Linear(16, CLASSES))
    for number, weight in enumerate(model.parameters()):
        weight.data.copy_(whole(number, *weight.shape))
        spmd.assert_type(weight, {"dp": R, "tp": R})
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    for step in range(2):
        inputs = whole(100 + step, MICRO, BATCH, WIDTH)
        targets = torch.randint(CLASSES, (MICRO, BATCH), generator=torch.Generator().manual_seed(step))
        targets[:, : BATCH // 3] = IGNORED  # padding, most of it on the first ranks
        x = spmd.assert_type(piece(inputs, mesh, dp=1), {"dp": S(1), "tp": R})
        y = spmd.assert_type(piece(targets, mesh, dp=1), {"dp": S(1), "tp": R})
        counted = (y != IGNORED).sum(0)
        count = spmd.all_reduce(spmd.sum(counted, "dp", src=S(0), dst=P), "dp", src=P, dst=R)
        for micro in range(MICRO):
            losses = F.cross_entropy(model(x[micro]), y[micro], ignore_index=IGNORED, reduction="none")
            loss = spmd.sum(losses, "dp", src=S(0), dst=P) / count
            spmd.convert(loss, "tp", src=R, dst=P).backward()
        for weight in model.parameters():
            for axis in ("dp", "tp"):
                dist.all_reduce(weight.grad, group=mesh.get_group(axis))
        optimizer.step()
        optimizer.zero_grad()
dist.destroy_process_group()
