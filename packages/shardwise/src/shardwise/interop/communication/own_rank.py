"""Which rank is this? One number, unless this process stands for several ranks at once.

Under torch's ``LocalTensorMode`` a tensor holds a tensor for every simulated rank, and a collective moves them as a job
would; what depends on the number of the rank has to be done once for each of them.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor
from torch.compiler import is_compiling

from shardwise.mesh.axis import MeshAxis

from ..torch_compat import simulated_ranks
from .process_groups import Communicator


def with_own_rank(x: Tensor, comm: Communicator, act: Callable[[Tensor, int], Tensor]) -> Tensor:
    """``act(x, rank)`` with this rank's place on the axis; of every simulated rank with its own tensor and place."""
    mode = None if is_compiling() else simulated_ranks()
    if mode is None:
        return act(x, comm.rank)
    layout = MeshAxis.of(comm.group).layout if comm.size > 1 else None

    def place(rank: int) -> int:
        return 0 if layout is None else layout.place(rank)

    made: Tensor
    if type(x) is Tensor:
        made = mode.rank_map(lambda rank: act(x, place(rank)))
    else:
        made = mode.tensor_map(x, lambda rank, own: act(own, place(rank)))
    return made
