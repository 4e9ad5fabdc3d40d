"""Tensor parallelism as in Megatron-LM: a column-parallel layer, then a row-parallel one whose bias is added once."""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from common import piece, start, whole
from torch import Tensor, nn

import shardwise as spmd
from shardwise import I, P, R, S

mesh = start("dp", "tp")
BATCH, WIDTH, HIDDEN = 8, 12, 16


def parameter(full: Tensor, shard_dim: int | None = None) -> nn.Parameter:
    """Replicate over dp; over tp cut along ``shard_dim``, or invariant."""
    local = full if shard_dim is None else piece(full, mesh, tp=shard_dim)
    return spmd.assert_type(nn.Parameter(local), {"dp": R, "tp": I if shard_dim is None else S(shard_dim)})


class MLP(nn.Module):
    def __init__(self, seed: int) -> None:
        super().__init__()
        self.norm = parameter(whole(seed, WIDTH) + 1)
        self.up = parameter(whole(seed + 1, HIDDEN, WIDTH), 0)
        self.up_bias = parameter(whole(seed + 2, HIDDEN), 0)
        self.down = parameter(whole(seed + 3, WIDTH, HIDDEN), 1)
        self.down_bias = parameter(whole(seed + 4, WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        h = F.layer_norm(x, (WIDTH,), self.norm)
        h = spmd.convert(h, "tp", src=I, dst=R)
        h = F.gelu(F.linear(h, self.up, self.up_bias))
        y = spmd.linear(h, self.down, out_partial_axes="tp")
        return x + spmd.all_reduce(y, "tp", src=P, dst=I) + self.down_bias


with spmd.set_current_mesh(mesh):
    model = nn.Sequential(MLP(0), MLP(10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(2):
        x = spmd.assert_type(piece(whole(100 + step, BATCH, WIDTH), mesh, dp=0), {"dp": S(0), "tp": I})
        y = spmd.assert_type(piece(whole(200 + step, BATCH, WIDTH), mesh, dp=0), {"dp": S(0), "tp": I})
        squares = (model(x) - y).square().sum(-1)
        loss = spmd.sum(squares, "dp", src=S(0), dst=P) / (x.shape[0] * mesh["dp"].size())
        loss.backward()
        for weight in model.parameters():
            dist.all_reduce(weight.grad, group=mesh.get_group("dp"))
        optimizer.step()
        optimizer.zero_grad()
dist.destroy_process_group()
