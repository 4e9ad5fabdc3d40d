"""Activation checkpointing in both forms, under autocast, with a gradient scaler."""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.utils.checkpoint import checkpoint, checkpoint_sequential

import shardwise as spmd
from shardwise import I, P, R, S, V

dist.init_process_group("nccl")
mesh = init_device_mesh("cuda", (2, 4), mesh_dim_names=("dp", "tp"))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(16)
        self.up = nn.Linear(16, 8)
        self.down = nn.Linear(8, 16, bias=False)
        spmd.assert_type(list(self.norm.parameters()), {"dp": R, "tp": I})
        spmd.assert_type(list(self.up.parameters()), {"dp": R, "tp": S(0)})
        spmd.assert_type(self.down.weight, {"dp": R, "tp": S(1)})

    def forward(self, x):
        h = spmd.convert(self.norm(x), "tp", src=I, dst=R, backward_options={"op_dtype": torch.float32})
        h = self.down(F.gelu(self.up(h)))
        return x + spmd.all_reduce(h, "tp", src=V, dst=I)


with spmd.set_current_mesh(mesh):
    blocks = nn.Sequential(Block(), Block())
    optimizer = torch.optim.AdamW(blocks.parameters())
    scaler = torch.amp.GradScaler("cpu", enabled=True)
    for reentrant in (True, False):
        x = spmd.assert_type(torch.randn(4, 16, requires_grad=True), {"dp": S(0), "tp": I})
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = x
            for block in blocks:
                y = checkpoint(block, y, use_reentrant=reentrant)
            y = checkpoint_sequential(blocks, 2, y, use_reentrant=reentrant)
            loss = y.float().pow(2).mean()
        loss = spmd.reinterpret(loss, "dp", src=V, dst=P) / 2
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        for parameter in blocks.parameters():
            dist.all_reduce(parameter.grad, group=mesh.get_group("dp"))
        nn.utils.clip_grad_value_(blocks.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
