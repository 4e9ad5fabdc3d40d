"""Sequence parallelism (Korthikanti et al. 2022): between blocks each tp rank holds a piece of the sequence."""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from common import piece, start, whole
from torch import Tensor, nn

import shardwise as spmd
from shardwise import I, P, R, S

mesh = start("dp", "tp")
BATCH, LENGTH, WIDTH, HIDDEN = 4, 8, 12, 16


def parameter(full: Tensor, shard_dim: int | None = None) -> nn.Parameter:
    """Replicate over dp; over tp cut along ``shard_dim``, or invariant."""
    local = full if shard_dim is None else piece(full, mesh, tp=shard_dim)
    return spmd.assert_type(nn.Parameter(local), {"dp": R, "tp": I if shard_dim is None else S(shard_dim)})


class Block(nn.Module):
    def __init__(self, seed: int) -> None:
        super().__init__()
        self.norm = parameter(whole(seed, WIDTH) + 1)
        self.up = parameter(whole(seed + 1, HIDDEN, WIDTH), 0)
        self.down = parameter(whole(seed + 2, WIDTH, HIDDEN), 1)
        self.bias = parameter(whole(seed + 3, WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        """[B, T, D] to the same; T is this tp rank's piece of the sequence."""
        norm = spmd.convert(self.norm, "tp", src=I, dst=R)
        bias = spmd.convert(self.bias, "tp", src=I, dst=R)
        h = spmd.all_gather(F.rms_norm(x, (WIDTH,), norm), "tp", src=S(1), dst=R)
        h = F.silu(F.linear(h, self.up))
        y = spmd.linear(h, self.down, out_partial_axes="tp")
        return x + spmd.reduce_scatter(y, "tp", src=P, dst=S(1)) + bias


with spmd.set_current_mesh(mesh):
    model = nn.Sequential(Block(0), Block(10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(2):
        x = spmd.assert_type(piece(whole(100 + step, BATCH, LENGTH, WIDTH), mesh, dp=0), {"dp": S(0), "tp": I})
        y = spmd.assert_type(piece(whole(200 + step, BATCH, LENGTH, WIDTH), mesh, dp=0), {"dp": S(0), "tp": I})
        x = spmd.convert(x, "tp", src=I, dst=S(1))
        out = spmd.all_gather(model(x), "tp", src=S(1), dst=I)
        loss = spmd.sum((out - y).square().sum((1, 2)), "dp", src=S(0), dst=P) / (x.shape[0] * mesh["dp"].size())
        loss.backward()
        for weight in model.parameters():
            dist.all_reduce(weight.grad, group=mesh.get_group("dp"))
        optimizer.step()
        optimizer.zero_grad()
dist.destroy_process_group()
