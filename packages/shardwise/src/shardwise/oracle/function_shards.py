"""Which dims of an autograd function's results are sharded, if its operands are? Runs on wholes and on pieces tell."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from shardwise.mesh.axis import MeshAxis

from .function_runs import FunctionRuns, NotRun
from .trial_values import close, random_values


def shard_dims(
    runs: FunctionRuns,
    axis: MeshAxis,
    along: Sequence[int | None],
    beside: Sequence[Sequence[int | None]],
    results: int,
) -> tuple[list[int | None], list[list[int | None]]] | None:
    """The dims that results are sharded on, where the operands are sharded on some; None if it cannot be told.

    ``along``    per operand the dim that ``axis`` shards, None if it is equal there; of pending sums nothing is known.
    ``beside``   the same for every other axis.

    The function is run on whole operands in groups of one rank, and on pieces. A dim along which the pieces of a result
    make the whole is the one; a result that is the whole itself is sharded on none.
    """
    try:
        return _Shards(runs, axis).found(along, beside, results)
    except (NotRun, RuntimeError):
        return None


class _Shards:
    def __init__(self, runs: FunctionRuns, axis: MeshAxis) -> None:
        self.runs = runs
        base = runs.rank - sum((runs.rank // s) % n * s for n, s in axis.layout.atoms)
        self.ranks = [base + offset for offset in axis.layout.ranks()]

    def found(
        self, along: Sequence[int | None], beside: Sequence[Sequence[int | None]], results: int
    ) -> tuple[list[int | None], list[list[int | None]]] | None:
        pieces = self._pieces(along, len(self.ranks))
        whole = [piece[0] if dim is None else torch.cat(piece, dim) for piece, dim in zip(pieces, along, strict=True)]
        parts = self.runs.observe(
            lambda rank: [piece[self.ranks.index(rank)] for piece in pieces], None, None, self.ranks
        )
        alone = self.runs.observe(lambda rank: whole, None, None, (self.runs.rank,), alone=True)
        first = self._matched([point.results for point in parts.points], alone.points[0].results, results)
        others = [self._matched_beside(dims, results) for dims in beside]
        if first is None or any(one is None for one in others):
            return None
        return first, [one for one in others if one is not None]

    def _pieces(self, dims: Sequence[int | None], count: int, salt: int = 0) -> list[list[torch.Tensor]]:
        shapes = [self.runs.shape(at) for at in self.runs.operands]
        return [
            [random_values(shape, 6, salt, at, 0 if dim is None else one + 1) for one in range(count)]
            for at, (shape, dim) in enumerate(zip(shapes, dims, strict=True))
        ]

    def _matched_beside(self, dims: Sequence[int | None], results: int) -> list[int | None] | None:
        pieces = self._pieces(dims, 2, 1)
        whole = [piece[0] if dim is None else torch.cat(piece, dim) for piece, dim in zip(pieces, dims, strict=True)]

        def results_of(values: list[torch.Tensor]) -> tuple[torch.Tensor, ...]:
            return self.runs.observe(lambda rank: values, None, None, self.ranks).points[0].results

        runs = [
            results_of(values) for values in ([piece[0] for piece in pieces], [piece[1] for piece in pieces], whole)
        ]
        return self._matched(runs[:2], runs[2], results)

    def _matched(
        self, parts: Sequence[Sequence[torch.Tensor]], whole: Sequence[torch.Tensor], results: int
    ) -> list[int | None] | None:
        if len(whole) != results or any(len(one) != results for one in parts):
            return None
        dims: list[int | None] = []
        for k in range(results):
            pieces = [one[k] for one in parts]
            if all(close(piece, whole[k]) for piece in pieces):
                dims.append(None)
                continue
            fits = [dim for dim in range(whole[k].ndim) if _joins(pieces, whole[k], dim)]
            if len(fits) != 1:
                return None
            dims.append(fits[0])
        return dims


def _joins(pieces: Sequence[torch.Tensor], whole: torch.Tensor, dim: int) -> bool:
    fits = all(
        a == b for piece in pieces for at, (a, b) in enumerate(zip(piece.shape, whole.shape, strict=True)) if at != dim
    )
    return fits and close(torch.cat(list(pieces), dim), whole)
