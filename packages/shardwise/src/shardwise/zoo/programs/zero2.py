"""ZeRO stage 2: each rank keeps the optimizer's state and the summed gradients of one piece of the weights.

Mesh:    one axis, dp. The sum of the gradients is a reduce-scatter and the weights are gathered: what data parallelism
         receives, and no more.
Choose:  before stage 3, when whole weights fit and gradients with the optimizer's state do not.
Breaks:  a gradient that is scattered after every micro-batch and then added to the whole; a mean in the scatter beside
         a loss that is a mean already.
Memory:  2 * H * D
State:   2 * H * D / dp
Traffic: dp = 2 * reduce_scatter(H * D) + 2 * all_gather(H * D / dp)
"""

from dataclasses import replace

from torch import Tensor

import shardwise as spmd
from shardwise import P, S
from shardwise.zoo.program import main
from shardwise.zoo.programs import data_parallel
from shardwise.zoo.programs.data_parallel import D, H
from shardwise.zoo.programs.zero1 import ShardedSGD

__all__ = ["PROGRAM", "D", "H"]  # the sizes are those of the formulas above


class ScatteredSGD(ShardedSGD):
    """As in stage 1, but no rank has the whole of a summed gradient."""

    def summed(self, gradient: Tensor) -> Tensor:
        return spmd.reduce_scatter(gradient, "dp", src=P, dst=S(0))


PROGRAM = replace(data_parallel.PROGRAM, optimizer=ScatteredSGD)

if __name__ == "__main__":
    main(PROGRAM)
