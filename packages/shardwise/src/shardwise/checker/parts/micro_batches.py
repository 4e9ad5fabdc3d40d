"""A sharded batch that is cut into micro-batches: each is a shard of some of the rows, and all together are the batch.

``x[i * m : (i + 1) * m]``, ``x[i::k]``, ``x[order[i : i + m]]`` and ``x.split(m)`` take rows of every rank's shard,
which on one device are other rows than those that one micro-batch has there. A program that treats all of them alike
and adds up computes the same all the same. So such a cut is refused as any other, and the finding is withdrawn at the
end of the run if every expression that was given one micro-batch was given each of them, once around, and none ever met
another.

A micro-batch has n times its rows on one device, and as many of them are added up there; unless other runs have shown
that it has as many rows on any number of ranks. Then its size is no part of anything, and a mean over it is a sum over
rows, divided by a number:

the size of a micro-batch is cut by n    mean(): P, n times the whole mean if it is summed over ranks
it is the same on any number of ranks    mean(): P, which summed over ranks is the sum of that many means
"""

from __future__ import annotations

import contextlib
import linecache
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from shardwise.diagnostics.finding import Finding
from shardwise.diagnostics.source import user_location
from shardwise.diagnostics.source_location import SourceLocation
from shardwise.interop.running.recording import has_values
from shardwise.interop.tensors.containers import tensors_in
from shardwise.interop.tensors.dtensors import is_dtensor
from shardwise.interop.tensors.own_references import by_tensor
from shardwise.interop.tensors.tagging import Tag, set_tag, set_type, tag_of, type_of
from shardwise.interop.torch_call import Arguments, Keywords
from shardwise.interop.torch_compat import no_torch_function
from shardwise.mesh.axis import MeshAxis
from shardwise.op_rules.propagation.call_types import Outcome
from shardwise.types.spec import partition_spec_get_shard
from shardwise.types.tensor_type import UNKNOWN_TYPE, Exponent, Ground, TensorType

from ..call.arguments import Op
from ..state.session import CheckSession

_LISTING = ("split", "split_with_sizes", "chunk", "tensor_split", "unsafe_split", "unsafe_chunk")
_TAKING = ("getitem", "narrow", "index_select")
CUTTING = frozenset((*_LISTING, *_TAKING))
"""The operators that cut a batch, by the names of their rules."""
OF_CUTS = "a cut into micro-batches, of which all are treated alike"
"""What is listed as trusted."""


Rows = range | tuple[int, ...]


@dataclass(slots=True, eq=False)
class BatchCuts:
    """The micro-batches that one expression cuts out of dims of ``size`` rows on every rank of ``axes``.

    ``uses``  for every expression that was given one of them, which.
    ``met``   two of them have met, or one of them rows that are no micro-batch.
    """

    axes: tuple[MeshAxis, ...]
    size: int
    location: SourceLocation | None
    findings: list[Finding] = field(default_factory=list)
    uses: dict[object, set[Rows]] = field(default_factory=dict)
    met: bool = False

    def are_whole(self) -> bool:
        """Every use was one of all rows, none of them twice."""
        return bool(self.uses) and not self.met and all(_tile(spans, self.size) for spans in self.uses.values())


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """Rows ``span`` of ``size`` on every rank of ``axes``; equal to those that another cut takes of as many rows."""

    axes: tuple[MeshAxis, ...]
    size: int
    span: Rows
    cuts: tuple[BatchCuts, ...] = field(compare=False)


@dataclass(frozen=True, slots=True)
class CuttingCall:
    """One call that cuts: its outcome as if it were a shard that it gives, and how the findings before it end.

    ``rows``  those that it takes, of which as many count as its results have.
    """

    outcome: Outcome
    dim: int
    rows: Rows
    cuts: BatchCuts
    told: int

    def note(self, session: CheckSession, result: object) -> None:
        """Remember what the call has given, and what it was told."""
        if session.collector is not None:
            self.cuts.findings += session.collector.added_since(self.told)
        start = 0
        for made in tensors_in(result):
            with no_torch_function():
                stop = start + made.shape[self.dim]
                _batches[made] = MicroBatch(self.cuts.axes, self.cuts.size, self.rows[start:stop], (self.cuts,))
            start = stop


_batches: Any = by_tensor()
TOLD_ROWS: dict[MeshAxis, frozenset[int]] = {}
"""By axis the rows of a rank's micro-batches, where other runs have shown that they are the same on any number."""


@contextlib.contextmanager
def told_rows(axis: MeshAxis, rows: frozenset[int]) -> Iterator[None]:
    """Inside the block a micro-batch of so many rows is known to have as many on any number of ranks of ``axis``."""
    if not rows:
        yield
        return
    TOLD_ROWS[axis] = rows
    try:
        yield
    finally:
        del TOLD_ROWS[axis]


def axes_of_no_size(x: torch.Tensor) -> tuple[MeshAxis, ...]:
    """The axes over which ``x`` is sharded, whose number of ranks its size does not depend on."""
    batch = micro_batch_of(x)
    return () if batch is None else _of_no_size(batch)


def _of_no_size(batch: MicroBatch) -> tuple[MeshAxis, ...]:
    return tuple(axis for axis in batch.axes if len(batch.span) in TOLD_ROWS.get(axis, ()))


def micro_batch_of(x: torch.Tensor) -> MicroBatch | None:
    """Which micro-batch ``x`` is, or is computed of."""
    with no_torch_function():
        found: MicroBatch | None = _batches.get(x)
    return found


def cut_of(session: CheckSession, op: Op, args: Arguments, kwargs: Keywords, outcome: Outcome) -> CuttingCall | None:
    """The cut into micro-batches that a refused call of one of ``CUTTING`` may be.

    Where findings are raised, none is: it could not wait.
    """
    if session.local or session.collector is None or {one.refusal.code for one in outcome.refusals} != {"SW405"}:
        return None
    axes, x = [one.axis for one in outcome.refusals], args[0] if args else None
    if not isinstance(x, torch.Tensor) or micro_batch_of(x) is not None:
        return None
    type = type_of(x)
    over = tuple(axis for axis in axes if isinstance(axis, MeshAxis) and axis not in type.uneven)
    shards = {partition_spec_get_shard(type.spec, axis) for axis in over}
    shard = next(iter(shards), None)
    if shard is None or len(shards) > 1 or len(over) < len(axes):
        return None
    with no_torch_function():
        size, ndim = x.shape[shard.dim], x.ndim
    whole = range(size)
    taken = whole if op.rule.op in _LISTING else _taken(dict(op.arguments(args, kwargs)), shard.dim, whole, ndim)
    if taken is None:
        return None
    location = user_location()
    function = location and (location.file, location.function)
    cuts = session.cuts.setdefault((function, _expression(location), over, size), BatchCuts(over, size, location))
    session.rows_moved = True  # what follows is looked at by ``following``
    shard_of = replace(outcome, type=type, results=(), refusals=(), sources=(0,) * len(type.axes))
    return CuttingCall(shard_of, shard.dim, taken, cuts, session.collector.count)


def _taken(given: Mapping[str, object], dim: int, rows: range, ndim: int) -> Rows | None:
    """Those of ``rows`` from the first that ``narrow``, a slice or an index of no other dim takes along ``dim``; None
    for others.
    """
    if "dim" in given and given["dim"] not in (dim, dim - ndim):
        return None
    if "start" in given:
        return rows[given["start"] :] if isinstance(given["start"], int) else None
    index = next((value for name, value in given.items() if name not in ("input", "dim")), None)
    at = index if isinstance(index, tuple) else (index,)
    if any(one is Ellipsis for one in at):
        front = next(place for place, one in enumerate(at) if one is Ellipsis)
        at = (*at[:front], *(slice(None),) * (ndim - len(at) + 1), *at[front + 1 :])
    others = [one for place, one in enumerate(at) if place != dim]
    if len(at) <= dim or not all(isinstance(one, slice) and one == slice(None) for one in others):
        return None
    own = at[dim]
    if isinstance(own, slice):
        step = 1 if own.step is None else own.step
        return rows[own.start or 0 :: step] if isinstance(step, int) and isinstance(own.start, int | None) else None
    return _chosen(own, rows)


def _chosen(index: object, rows: range) -> Rows | None:
    """The rows that a tensor of positions takes, if it is one with values."""
    if not isinstance(index, torch.Tensor) or is_dtensor(index) or not has_values(index):
        return None
    with no_torch_function():
        if index.ndim != 1 or index.dtype not in (torch.int64, torch.int32):
            return None
        found = index.tolist()
    return tuple(rows[at] for at in found) if all(-len(rows) <= at < len(rows) for at in found) else None


def following_batches(
    session: CheckSession, op: str, run: Callable[[], object], args: Arguments, kwargs: Keywords
) -> object:
    """``run()`` of an operator, whose results are the micro-batch that its operands are; where these differ, nothing is
    known of them, unless ``cat`` has put all of them together.
    """
    tensors = tensors_in((*args, *kwargs.values())) if session.cuts else []
    batches = [batch for x in tensors if (batch := micro_batch_of(x)) is not None]
    if not batches:
        return run()
    first = batches[0]
    pieces = [x for x in tensors if _is_piece(x, first.axes)]
    alike = all(micro_batch_of(x) == first for x in pieces)
    joined = op == "cat" and len(pieces) == len(batches) and _in_order(batches)
    cuts = tuple(dict.fromkeys(each for batch in batches for each in batch.cuts))
    used = _expression(user_location())
    for each in cuts:
        each.uses.setdefault(used, set()).update(batch.span for batch in batches)
        each.met |= not (alike or joined)
    told = 0 if session.collector is None else session.collector.count
    whole = type_of(pieces[0]) if joined else UNKNOWN_TYPE
    result = run()
    if joined and session.collector is not None:
        session.collector.withdraw(session.collector.added_since(told))
    for made in tensors_in(result):
        if not alike:
            set_tag(made, Tag(whole))
        elif _is_piece(made, first.axes):
            with no_torch_function():
                _batches[made] = replace(first, cuts=cuts)
        else:
            _count_means(made, pieces, _of_no_size(first))
    return result


def _count_means(made: torch.Tensor, pieces: Sequence[torch.Tensor], axes: Iterable[MeshAxis]) -> None:
    """A mean over rows that every number of ranks has is not n times too much: take away what it was given for that."""
    tag = tag_of(made)
    changed: dict[MeshAxis, Exponent] = {}
    for axis in axes if tag is not None else ():
        exponent = type_of(made).exponent(axis)
        given = max((type_of(x).exponent(axis) or 0 for x in pieces), default=0)
        if exponent is not None and exponent > given and type_of(made).is_partial(axis):
            changed[axis] = exponent - 1
    if tag is not None and changed:
        set_type(made, type_of(made).rescaled(changed), tag.origin)


def exchanged(x: torch.Tensor) -> None:
    """``x`` is sent to other ranks: which rows they get together depends on the cut."""
    batch = micro_batch_of(x)
    for each in () if batch is None else batch.cuts:
        each.met = True


def settle_cuts(session: CheckSession) -> None:
    """Withdraw what was said of cuts of which all micro-batches were treated alike."""
    for cuts in session.cuts.values():
        if cuts.are_whole() and session.collector is not None:
            session.collector.withdraw(cuts.findings)
            session.trust(OF_CUTS, cuts.location)


def _is_piece(x: torch.Tensor, axes: Iterable[MeshAxis]) -> bool:
    type: TensorType = type_of(x)
    return type.ground is Ground.ABSENT and any(partition_spec_get_shard(type.spec, axis) is not None for axis in axes)


def _in_order(batches: Sequence[MicroBatch]) -> bool:
    size = batches[0].size
    rows = [row for batch in batches for row in batch.span]
    return rows == list(range(size)) and len({batch.size for batch in batches}) == 1


def _tile(spans: Iterable[Rows], size: int) -> bool:
    """The spans are all of ``range(size)``, none of it twice: 0..2 and 2..4 of 4, or every other row and the others."""
    return sorted(row for span in spans for row in span) == list(range(size))


def _expression(location: SourceLocation | None) -> object:
    """What stands at a place of the source: a line that is written twice, for the last micro-batch, is one use."""
    if location is None or location.column is None or location.end_line not in (None, location.line):
        return location
    return linecache.getline(location.file, location.line)[location.column : location.end_column].strip() or location
