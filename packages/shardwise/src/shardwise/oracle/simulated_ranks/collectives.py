"""What a collective of ``torch.distributed`` gives each rank, as a function of what all ranks of its group hand in.

A call is read by the name of the function and of its parameters, the functional ones of ``torch.ops`` too.
Source: the documentation of ``torch.distributed``.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist

from shardwise.interop.tensors.containers import tensors_in
from shardwise.interop.torch_compat import group_named
from shardwise.op_rules.raw_collectives import FUNCTIONAL, RAW, RawCollective

Inputs = Sequence[Sequence[torch.Tensor]]
"""What each rank of the group hands in, in group order."""

_REDUCE: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "sum": torch.add,
    "avg": torch.add,
    "product": torch.mul,
    "min": torch.minimum,
    "max": torch.maximum,
}
_COALESCED = "_coalesced"


class NotSimulated(Exception):
    """A call that cannot be simulated."""


@dataclass(frozen=True, eq=False)
class CollectiveCall:
    """One collective as a rank calls it: what it sends, and where it receives (empty: the result is returned)."""

    name: str
    row: RawCollective
    given: Mapping[str, Any]
    group: Any

    @property
    def sent(self) -> tuple[torch.Tensor, ...]:
        return tensors_in(self.given.get(self.row.sent))

    @property
    def received(self) -> tuple[torch.Tensor, ...]:
        return tensors_in(self.given.get(self.row.received)) if self.row.received else ()

    @property
    def is_async(self) -> bool:
        return bool(self.given.get("async_op"))

    @property
    def peer(self) -> int | None:
        """The rank at the other end of a message, or the root: a global rank, or one of the group."""
        for name, is_global in (("group_dst", False), ("group_src", False), ("dst", True), ("src", True)):
            rank = self.given.get(name)
            if isinstance(rank, int):
                return dist.get_global_rank(self.group, rank) if self.group is not None and not is_global else rank
        return 0 if self.row.name in ("broadcast", "scatter", "gather") else None


def call_of(name: str, args: Sequence[object], kwargs: Mapping[str, object], functional: bool) -> CollectiveCall:
    """The call of the collective ``name``. Errors: NotSimulated."""
    row = (FUNCTIONAL if functional else RAW).get(name)
    if row is None or name.endswith(_COALESCED):
        raise NotSimulated(name)
    given = dict(zip(row.params.split(), args, strict=False)) | dict(kwargs)
    group = given.get("group", given.get("group_name"))
    if isinstance(group, str):
        group = group_named(group)
    return CollectiveCall(name, row, given, group)


def outcome(
    call: CollectiveCall, ranks: Sequence[int], own: int, inputs: Inputs, given: Sequence[Mapping[str, object]]
) -> list[torch.Tensor]:
    """What rank ``ranks[own]`` receives: a list of tensors, flat where the shape follows from the buffer.

    ``given``  the arguments of every rank's call. Errors: NotSimulated.
    """
    base = call.name.rstrip("_")
    n = len(ranks)
    if base == "all_reduce":
        return [_reduced(call, [one[k] for one in inputs]) for k in range(len(inputs[own]))]
    if base == "reduce":
        total = [_reduced(call, [one[k] for one in inputs]) for k in range(len(inputs[own]))]
        return total if ranks[own] == call.peer else list(inputs[own])
    if base == "broadcast":
        return list(inputs[_root(call, ranks)])
    if base == "all_gather":
        return [one[0] for one in inputs]
    if base in ("all_gather_into_tensor", "all_gather_single"):
        return [torch.cat([one[0].reshape(-1, *_inner(one[0])) for one in inputs])]
    if base == "gather":
        return [one[0] for one in inputs] if ranks[own] == call.peer else []
    if base == "scatter":
        return [inputs[_root(call, ranks)][own]]
    if base == "reduce_scatter":
        return [_reduced(call, [one[own] for one in inputs])]
    if base in ("reduce_scatter_tensor", "reduce_scatter_single"):
        return [_reduced(call, [torch.chunk(one[0], n)[own] for one in inputs])]
    if base == "all_to_all":
        return [one[own] for one in inputs]
    if base == "all_to_all_single":
        pieces = [_cut(one[0], _counts(each, _SENT), n)[own] for one, each in zip(inputs, given, strict=True)]
        return [torch.cat([*_fitted(pieces, _counts(given[own], _RECEIVED))])]
    raise NotSimulated(call.name)


def _root(call: CollectiveCall, ranks: Sequence[int]) -> int:
    if call.peer not in ranks:
        raise NotSimulated(f"{call.name} from a rank outside of its group")
    return ranks.index(call.peer)


def _inner(x: torch.Tensor) -> tuple[int, ...]:
    return tuple(x.shape[1:])


def _reduced(call: CollectiveCall, addends: Sequence[torch.Tensor]) -> torch.Tensor:
    op = call.given.get("op", call.given.get("reduce_op", dist.ReduceOp.SUM))
    kind = op.lower() if isinstance(op, str) else next((k for k in _REDUCE if _is(op, k)), "")
    if kind not in _REDUCE:
        raise NotSimulated(f"{call.name} by {op}")
    total = functools.reduce(_REDUCE[kind], addends)
    return total / len(addends) if kind == "avg" else total


def _is(op: object, kind: str) -> bool:
    return bool(op == getattr(dist.ReduceOp, kind.upper()))


_SENT, _RECEIVED = ("input_split_sizes", "in_splits"), ("output_split_sizes", "out_splits")


def _counts(given: Mapping[str, Any], names: Sequence[str]) -> list[int]:
    """The rows for each rank; none where all have as many. They may be told in an array."""
    sizes = next((given[name] for name in names if given.get(name) is not None), ())
    return list(map(int, sizes))


def _fitted(pieces: Sequence[torch.Tensor], rows: Sequence[int]) -> Sequence[torch.Tensor]:
    """``pieces`` with as many rows as the one expects who gets them.

    Ranks that are imagined all have the counts of one, by which they would send other numbers than they expect. What is
    too much is left out, and what is missing is zero. That is linear, and the exchange back by the same counts is the
    transpose: it leaves out and fills up the same rows.
    """
    if not rows or [len(piece) for piece in pieces] == list(rows):
        return pieces
    if len(rows) != len(pieces):
        raise NotSimulated("all_to_all_single with counts for another number of ranks")
    return [
        torch.cat([piece[:count], piece.new_zeros(max(count - len(piece), 0), *piece.shape[1:])])
        for piece, count in zip(pieces, rows, strict=True)
    ]


def _cut(x: torch.Tensor, sizes: Sequence[int], n: int) -> Sequence[torch.Tensor]:
    if x.ndim == 0 or (not sizes and x.shape[0] % n):
        raise NotSimulated("all_to_all_single of a dim that has no equal parts")
    return torch.split(x, list(sizes)) if sizes else torch.split(x, x.shape[0] // n)
