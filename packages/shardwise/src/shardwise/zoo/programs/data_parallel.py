"""Data parallelism: every rank has the whole model and a part of the batch; gradients are summed once a step.

Mesh:    one axis, dp, over everything. Its only traffic is the sum of the gradients, which can overlap with backward.
Choose:  when weights, gradients and optimizer state fit on every device. It is the first thing to try.
Breaks:  a weight that is left out of the sum drifts apart; a mean over the rank's own rows under a sum of gradients is
         dp times too much; dropout masks are the same on every rank if all are seeded alike.
Memory:  2 * H * D
Activations: B / dp * (2 * H + D)
Traffic: dp = all_reduce(2 * H * D)
"""

import torch.nn.functional as F
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh

import shardwise as spmd
from shardwise import P, S
from shardwise.zoo.program import Tensors, ZooProgram, main

B, D, H = 8, 12, 16


def single(w: Tensors, x: Tensors) -> Tensor:
    y = F.linear(F.gelu(F.linear(x.tokens, w.up)), w.down)
    return (y - x.targets).square().sum() / B


def parallel(w: Tensors, x: Tensors, mesh: DeviceMesh) -> Tensor:
    y = F.linear(F.gelu(F.linear(x.tokens, w.up)), w.down)
    return spmd.mean((y - x.targets).square().sum(-1), "dp", src=S(0), dst=P)


PROGRAM = ZooProgram(
    mesh={"dp": 4},
    shared=["dp"],
    weights={"up": "f64[16, 12] {dp: R}", "down": "f64[12, 16] {dp: R}"},
    inputs={"tokens": "f64[8@dp, 12]", "targets": "f64[8@dp, 12]"},
    single=single,
    parallel=parallel,
)

if __name__ == "__main__":
    main(PROGRAM)
