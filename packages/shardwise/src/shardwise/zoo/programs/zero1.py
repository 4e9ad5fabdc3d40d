"""ZeRO stage 1: as data parallelism, but each rank keeps the optimizer's state of one piece of the weights.

Mesh:    one axis, dp. A step sums the gradients and gathers the weights: half as much again as data parallelism.
Choose:  when the optimizer's state is what does not fit: with Adam in mixed precision it is three quarters of all.
Breaks:  a norm of gradients for clipping that is taken of a rank's piece; a weight that is updated where its piece is
         not, and then overwritten by the gather.
Memory:  2 * H * D
State:   2 * H * D / dp
Activations: B / dp * (2 * H + D)
Traffic: dp = all_reduce(2 * H * D) + 2 * all_gather(H * D / dp)
"""

from dataclasses import replace

import torch
from torch import Tensor

import shardwise as spmd
from shardwise import P, R, S
from shardwise.zoo.program import LEARNING_RATE, MOMENTUM, Tensors, main
from shardwise.zoo.programs import data_parallel
from shardwise.zoo.programs.data_parallel import B, D, H

__all__ = ["PROGRAM", "B", "D", "H"]  # the sizes are those of the formulas above


class ShardedSGD:
    """Momentum of this rank's piece of every weight, cut along dim 0."""

    def __init__(self, w: Tensors) -> None:
        self.weights = list(vars(w).values())
        self.state = [torch.zeros_like(spmd.convert(x.detach(), "dp", src=R, dst=S(0))) for x in self.weights]

    def summed(self, weight: Tensor) -> Tensor:
        """This rank's piece of the sum of all ranks' gradients."""
        assert weight.grad is not None
        return spmd.convert(spmd.all_reduce(weight.grad, "dp", src=P, dst=R), "dp", src=R, dst=S(0))

    @torch.no_grad()
    def step(self) -> None:
        for weight, momentum in zip(self.weights, self.state, strict=True):
            momentum.mul_(MOMENTUM).add_(self.summed(weight))
            piece = spmd.convert(weight, "dp", src=R, dst=S(0)) - LEARNING_RATE * momentum
            weight.copy_(spmd.all_gather(piece, "dp", src=S(0), dst=R))

    def zero_grad(self) -> None:
        for weight in self.weights:
            weight.grad = None


PROGRAM = replace(
    data_parallel.PROGRAM,
    optimizer=ShardedSGD,
    state={"up": "f64[16@dp, 12]", "down": "f64[12@dp, 16]"},
)

if __name__ == "__main__":
    main(PROGRAM)
