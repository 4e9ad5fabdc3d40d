"""How the ranks drew random numbers, and which of these draws make one of the run on one rank, one behind the other."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch

from shardwise.interop.running.recording import Key
from shardwise.interop.tensors.bits import digest_of


@dataclass(frozen=True, eq=False)
class RankDraw:
    """How a rank drew: the ``state`` of the generator before, and the ``shape`` of what was drawn or handed in."""

    state: torch.Tensor
    shape: tuple[int, ...]


Draws = Mapping[Key, RankDraw]
"""Those of a rank, each as often as its line drew before it."""


@dataclass
class KeptDraws:
    """The draws of a rank, as long as their states take no more than ``room_bytes``; then none of them is kept."""

    room_bytes: float = math.inf
    draws: dict[Key, RankDraw] = field(default_factory=dict)

    def keep(self, key: Key, draw: RankDraw) -> None:
        """Keep another one, if there is room."""
        self.room_bytes -= draw.state.nbytes
        if self.room_bytes >= 0:
            self.draws[key] = draw
        else:
            self.draws.clear()


def pieces_of(draws: Sequence[RankDraw], shape: tuple[int, ...], *, alike: bool) -> tuple[int, list[RankDraw]] | None:
    """Along which dim the ranks' draws make one of ``shape``, and which of them do; None if none is sure to.

    Ranks that drew the same hold copies. ``alike``: they may have drawn the same for parts that differ, as masks of
    their own rows from one seed; where a draw makes data or weights, parts that are the same are no parts.
    """
    distinct = list({digest_of(draw.state): draw for draw in reversed(draws)}.values())[::-1]
    if all(draw.shape == shape for draw in draws):
        return (0, [draws[0]]) if len(distinct) == 1 else None
    if any(len(draw.shape) != len(shape) for draw in draws):
        return None
    dims = {at for draw in draws for at, length in enumerate(draw.shape) if length != shape[at]}
    if len(dims) != 1:
        return None
    (dim,) = dims
    for chosen in (list(draws), distinct) if alike else (distinct,):
        if sum(draw.shape[dim] for draw in chosen) == shape[dim]:
            return dim, chosen
    length = draws[0].shape[dim]
    if not alike or len(distinct) > 1 or not length or shape[dim] % length:
        return None
    return dim, [draws[0]] * (shape[dim] // length)
