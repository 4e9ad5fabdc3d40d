"""ZeRO stage 2: each rank keeps the optimizer's state and the summed gradients of one piece of the weights.

Mesh:    one axis, dp. The sum of the gradients is a reduce-scatter and the weights are gathered: what data parallelism
         receives, and no more.
Choose:  before stage 3, when whole weights fit and gradients with the optimizer's state do not.
Breaks:  a gradient that is scattered after every micro-batch and then added to the whole; a mean in the scatter beside
         a loss that is a mean already.
Memory:  2 * H * D
Traffic: dp = 2 * reduce_scatter(H * D) + 2 * all_gather(H * D / dp)
"""

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh

import shardwise as spmd
from shardwise import P, R, S
from shardwise.zoo.program import LEARNING_RATE, MOMENTUM, Tensors, ZooProgram, main

B, D, H = 8, 12, 16


class ScatteredSGD:
    """Momentum of this rank's piece of every weight, cut along dim 0."""

    def __init__(self, w: Tensors) -> None:
        self.weights = list(vars(w).values())
        self.momentum = [torch.zeros_like(spmd.convert(x.detach(), "dp", src=R, dst=S(0))) for x in self.weights]

    @torch.no_grad()
    def step(self) -> None:
        for weight, momentum in zip(self.weights, self.momentum, strict=True):
            momentum.mul_(MOMENTUM).add_(spmd.reduce_scatter(weight.grad, "dp", src=P, dst=S(0)))
            piece = spmd.convert(weight, "dp", src=R, dst=S(0)) - LEARNING_RATE * momentum
            weight.copy_(spmd.all_gather(piece, "dp", src=S(0), dst=R))

    def zero_grad(self) -> None:
        for weight in self.weights:
            weight.grad = None


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
    optimizer=ScatteredSGD,
)

if __name__ == "__main__":
    main(PROGRAM)
