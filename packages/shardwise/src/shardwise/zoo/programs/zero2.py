"""ZeRO stage 2: each rank keeps the optimizer's state and the summed gradients of one piece of the weights.

Mesh:    one axis, dp. The sum of the gradients is a reduce-scatter and the weights are gathered: what data parallelism
         receives, and no more.
Choose:  before stage 3, when whole weights fit and gradients with the optimizer's state do not.
Breaks:  a second micro-batch whose piece takes the place of the first one's; clipping by a norm of a rank's own pieces;
         a mean in the scatter beside a loss that is a mean already.
Memory:  2 * H * D
State:   2 * H * D / dp
Gradients: 2 * H * D / dp
Activations: B / dp * (2 * H + D)
Traffic: dp = 2 * reduce_scatter(H * D) + 2 * all_gather(H * D / dp)
"""

from dataclasses import replace

from torch import Tensor

import shardwise as spmd
from shardwise import P, S
from shardwise.zoo.program import Tensors, main
from shardwise.zoo.programs import zero1
from shardwise.zoo.programs.data_parallel import B, D, H
from shardwise.zoo.programs.zero1 import ShardedSGD

__all__ = ["PROGRAM", "B", "D", "H"]  # the sizes are those of the formulas above


class ScatteredSGD(ShardedSGD):
    """As in stage 1, but a gradient is scattered as soon as backward has it, and no rank keeps a whole one."""

    def __init__(self, w: Tensors) -> None:
        super().__init__(w)
        self.pieces: dict[Tensor, Tensor] = {}
        for weight in self.weights:
            weight.register_post_accumulate_grad_hook(self.scatter)

    def scatter(self, weight: Tensor) -> None:
        """While backward goes on with the layer before."""
        assert weight.grad is not None
        self.pieces[weight] = spmd.reduce_scatter(weight.grad, "dp", src=P, dst=S(0))
        weight.grad = None

    def summed(self, weight: Tensor) -> Tensor:
        return self.pieces.pop(weight)


PROGRAM = replace(zero1.PROGRAM, optimizer=ScatteredSGD)

if __name__ == "__main__":
    main(PROGRAM)
