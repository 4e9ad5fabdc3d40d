"""Which public collective or coercion is a function of lists of local tensors? Told by numbers, and named.

For functions of one tensor: what forward makes of the operands is compared with every row of the table of transitions,
along every dim, and what backward makes of gradients with the backward of those rows.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch

from shardwise.mesh.axis import MeshAxis
from shardwise.mesh.normalize import axis_argument
from shardwise.op_rules.transitions import TRANSITIONS, Transition
from shardwise.types.placement import I, P, PerMeshAxisSpmdType, R, S, V

Values = Sequence[torch.Tensor]
Comparison = Callable[[torch.Tensor, torch.Tensor], bool]
_PLACES: dict[str, PerMeshAxisSpmdType] = {"R": R, "I": I, "V": V, "P": P}


@dataclass(frozen=True)
class PublicTransition:
    """A row of the table along certain dims: ``op(x, axis, src=src, dst=dst)``."""

    row: Transition
    src: PerMeshAxisSpmdType
    dst: PerMeshAxisSpmdType

    def call(self, operand: str, axis: MeshAxis) -> str:
        """As a program writes it."""
        return f"{self.row.op}({operand}, {axis_argument(axis)}, src={self.src!r}, dst={self.dst!r})"

    @property
    def backward(self) -> PublicTransition:
        """The row that takes its gradient, along the same dims."""
        assert self.row.backward is not None, "of pending sums and pieces every row has a backward"
        row = TRANSITIONS[self.row.backward]
        dims = {"S": [place for place in (self.dst, self.src) if isinstance(place, S)]}

        def place(letter: str, own: PerMeshAxisSpmdType) -> PerMeshAxisSpmdType:
            if letter != "S":
                return _PLACES[letter]
            return own if isinstance(own, S) else dims["S"][0]

        return PublicTransition(row, place(row.src, self.dst), place(row.dst, self.src))

    def words(self, x: str) -> str:
        """What it makes of ``x``, in a few words."""
        op, src, dst = self.row.op, self.src, self.dst
        if op == "all_reduce":
            return f"the sum of {x} over the ranks"
        if op == "all_gather":
            how = f"put together along dim {src.dim}" if isinstance(src, S) else "stacked"
            return f"every rank's {_bare(x)}, {how}"
        if op == "reduce_scatter":
            part = f"piece along dim {dst.dim}" if isinstance(dst, S) else "entry"
            return f"this rank's {part} of the sum of {x}"
        if op == "all_to_all":
            cut, joined = (dst.dim if isinstance(dst, S) else 0), (src.dim if isinstance(src, S) else 0)
            return f"pieces of {x}, exchanged: cut along dim {cut}, put together along dim {joined}"
        if isinstance(dst, S):
            return f"this rank's piece of {x} along dim {dst.dim}"
        if isinstance(src, S):
            return f"{x} padded with zeros along dim {src.dim}"
        return f"{x} as it is"

    def apply(self, values: Values) -> list[torch.Tensor]:
        """What every rank gets. Errors: RuntimeError or IndexError where the shapes do not fit."""
        n = len(values)
        op, src, dst = self.row.op, self.src, self.dst
        if op == "all_reduce":
            return [sum(values[1:], values[0])] * n
        if op == "all_gather":
            return [torch.cat(list(values), src.dim) if isinstance(src, S) else torch.stack(list(values))] * n
        if op == "reduce_scatter":
            total = sum(values[1:], values[0])
            return _pieces(total, n, dst)
        if op == "all_to_all":
            cut, joined = (dst.dim if isinstance(dst, S) else 0), (src.dim if isinstance(src, S) else 0)
            pieces = [_pieces(one, n, S(cut)) for one in values]
            return [torch.cat([pieces[sender][at] for sender in range(n)], joined) for at in range(n)]
        if isinstance(dst, S) and src in (R, I):
            return [_pieces(one, n, dst)[at] for at, one in enumerate(values)]
        if isinstance(src, S) and dst is P:
            return [_padded(one, at, n, src.dim) for at, one in enumerate(values)]
        if op == "convert" and dst is P and src in (R, I):
            return [one if at == 0 else torch.zeros_like(one) for at, one in enumerate(values)]
        return list(values)


def _bare(x: str) -> str:
    """Without an article."""
    return x.removeprefix("the ").removeprefix("its ")


def _pieces(x: torch.Tensor, n: int, place: PerMeshAxisSpmdType) -> list[torch.Tensor]:
    if not isinstance(place, S):
        if x.shape[0] != n:
            raise IndexError("no entry per rank")
        return list(x.unbind(0))
    if x.shape[place.dim] % n:
        raise IndexError("no equal pieces")
    return list(x.chunk(n, place.dim))


def _padded(x: torch.Tensor, at: int, n: int, dim: int) -> torch.Tensor:
    return torch.cat([x if one == at else torch.zeros_like(x) for one in range(n)], dim)


def rows(ndim: int) -> Iterator[PublicTransition]:
    """All rows along all dims of tensors with ``ndim`` dims; those that are meant in forward code come first."""
    every = []
    for row in TRANSITIONS.values():
        if row.op == "reinterpret" or (row.is_noop and row.src == row.dst) or row.reads != row.src:
            continue
        if not {row.src, row.dst} <= {*_PLACES, "S"}:
            continue  # a pending maximum has no gradient
        sources = [S(dim) for dim in range(ndim)] if row.src == "S" else [_PLACES[row.src]]
        targets = [S(dim) for dim in range(ndim)] if row.dst == "S" else [_PLACES[row.dst]]
        every += [
            PublicTransition(row, src, dst)
            for src, dst in itertools.product(sources, targets)
            if src != dst or src is V
        ]
    yield from sorted(every, key=lambda one: one.row.expert is not None)


def forwards_like(
    operands: Values, results: Values, close: Callable[[torch.Tensor, torch.Tensor], bool]
) -> list[PublicTransition]:
    """The rows whose forward makes ``results`` of ``operands``."""
    return [one for one in rows(operands[0].ndim) if _makes(one, operands, results, close)]


def _makes(one: PublicTransition, operands: Values, results: Values, close: Comparison) -> bool:
    try:
        made = one.apply(operands)
    except (RuntimeError, IndexError):
        return False
    return all(close(a, b) for a, b in zip(made, results, strict=True))
