"""Lookups in a rank's own part by positions in the whole: what others have is set to zero, or a sum counts it too.

local = ids - rank * n                 positions that count from the start of the part: ``MovedTag``
rows = F.embedding(local.clamp(...), table)   each rank has rows for all of them, and most are no rows of theirs
rows[outside] = 0                      what differs from rank to rank says which: nothing is claimed from here on
all_reduce(rows)                       without that line every rank adds a row

A vocabulary-parallel embedding and the target's logit of a vocabulary-parallel loss are that. The other way round,

position = logits.max(-1)[1]           counts from the start of the part: ``CountedTag``
position + rank * n                    counts from the start of the whole
all_reduce(position, MAX)              without that line it compares positions in different parts

Calls on such tensors go the slow way, as those on ``RaggedTag``s do, so that calls on others do nothing for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch

from shardwise.diagnostics.source import user_site
from shardwise.diagnostics.source_location import Hop
from shardwise.interop.calls.located_call import LocatedCall, report
from shardwise.interop.tensors.containers import tensors_in
from shardwise.interop.tensors.own_positions import (
    CountedTag,
    MovedTag,
    OwnPositions,
    mark_counted,
    mark_moved,
    moved_rows,
)
from shardwise.interop.tensors.tagging import Tag, set_tag, tag_of, type_of
from shardwise.mesh.axis import MeshAxis
from shardwise.types.placement import V
from shardwise.types.tensor_type import TensorType

from ..diagnosis.memory_findings import own_positions_combined, own_rows_summed
from ..state.numbers import TYPED_NUMBERS
from ..state.session import CheckSession

SUBTRACTING = frozenset(["sub", "subtract"])
_LOOKUPS = frozenset(["embedding", "gather", "take_along_dim", "index_select", "index", "getitem", "take"])
"""Operators that read elements of their first tensor, or of a table, by positions."""
_FILTERS = _LOOKUPS | {"masked_select", "nonzero", "compress"}
_WHOLE = (torch.int64, torch.int32)


def moves(values: Sequence[object]) -> MeshAxis | None:
    """The axis by whose ranks a difference of these moves positions that all of them have; None if it does not."""
    if len(values) < 2 or values[1].__class__ not in TYPED_NUMBERS:
        return None
    positions, number = values[0], type_of(values[1])
    if not isinstance(positions, torch.Tensor) or positions.dtype not in _WHOLE or len(number.varying_axes) != 1:
        return None
    (axis,) = number.varying_axes
    type = type_of(positions)
    return axis if axis in type and type.is_equal(axis) and not type.ground.is_constant else None


def counts(results: Sequence[TensorType]) -> MeshAxis | None:
    """The axis over whose shards an extreme has been found, with its position in this rank's; None if there is none."""
    if len(results) != 2 or not results[0].axes:
        return None
    found = (axis for axis in results[0].axes if results[0].get(axis).is_extremum and results[1].get(axis) is V)
    return next(found, None)


def follow_counted(values: Sequence[object], result: object, axis: MeshAxis | None) -> None:
    """Mark the positions among the results: those that are found here, over ``axis``, and copies of marked ones.

    What differs from rank to rank may have moved them to where they are in the whole.
    """
    if axis is not None:
        if isinstance(result, tuple):
            mark_counted(result[1], axis)
        return
    tags = [tag_of(value) for value in values if isinstance(value, torch.Tensor)]
    counted = [tag.axis for tag in tags if isinstance(tag, CountedTag)]
    moved = any(value.__class__ in TYPED_NUMBERS and type_of(value).varying_axes for value in values)
    if counted and len(tags) == 1 and not moved:
        for made in tensors_in(result):
            mark_counted(made, counted[0])


def follow(op: str, values: Sequence[object], result: object, destination: object, axis: MeshAxis | None) -> None:
    """Mark what a call of ``op`` leaves of operands of which some are marked; ``axis``: it moves them itself."""
    if axis is not None:
        for made in tensors_in(result if destination is None else destination):
            mark_moved(made, OwnPositions(axis, user_site(2)), rows=False)
        return
    tensors = [value for value in (*values, destination) if isinstance(value, torch.Tensor)]
    marked = [(value, tag) for value in tensors if isinstance(tag := tag_of(value), MovedTag)]
    if not marked:
        return
    for rows in (False, True):
        these = [(value, tag) for value, tag in marked if tag.rows is rows]
        if these:
            (_rows if rows else _positions)(op, tensors, these, result, destination)


def _positions(
    op: str,
    tensors: Sequence[torch.Tensor],
    marked: Sequence[tuple[torch.Tensor, MovedTag]],
    result: object,
    destination: object,
) -> None:
    moved = marked[0][1].moved
    read = next((x for x in tensors if x.is_floating_point() or x.is_complex()), None)
    if destination is not None:
        return  # positions that are clipped in place stay such; what is written into by them is another matter
    if op in _LOOKUPS and read is not None and all(x is not read for x, _ in marked):
        if type_of(read).get(moved.axis) is V:
            for made in tensors_in(result):
                mark_moved(made, OwnPositions(moved.axis, moved.site), rows=True)
        return
    if op in _FILTERS and len(tensors) > 1:
        return  # those that lie inside may have been chosen
    for made in tensors_in(result):
        if made.dtype in _WHOLE:
            mark_moved(made, moved, rows=False)


def _rows(
    op: str,
    tensors: Sequence[torch.Tensor],
    marked: Sequence[tuple[torch.Tensor, MovedTag]],
    result: object,
    destination: object,
) -> None:
    moved = marked[0][1].moved
    known = {id(value) for value, _ in marked}
    others = [x for x in tensors if id(x) not in known]
    if all(_is_equal(x, moved.axis) for x in others):
        for made in tensors_in(result) if destination is None else ():
            if made.is_floating_point() or made.is_complex():
                mark_moved(made, moved, rows=True)
        return
    if isinstance(destination, torch.Tensor) and id(destination) in known:
        moved.masked = True  # views of it included
        tag = tag_of(destination)
        if tag is not None:
            set_tag(destination, Tag(tag.type, tag.origin, tag.cell))


def _is_equal(x: torch.Tensor, axis: MeshAxis) -> bool:
    type = type_of(x)
    return type.ground.is_constant or (axis in type and type.is_equal(axis))


def check_combined(session: CheckSession, op: str, x: object, axis: MeshAxis) -> None:
    """Report a reduction over ``axis`` of positions that each of its ranks counts in its own shard. Errors: SW406."""
    tag = tag_of(x)
    if not isinstance(tag, CountedTag) or tag.axis.isorthogonal(axis):
        return
    located = LocatedCall(op, [("x", x)])
    said = own_positions_combined(op, located.name(0), axis)
    report(session, located, said, axis, operands=(located.operand(0, axis),))


def check_summed(session: CheckSession, op: str, x: object, axis: MeshAxis) -> None:
    """Report a sum over ``axis`` of what every rank has looked up by the positions of all. Errors: SW201."""
    moved = moved_rows(x)
    if moved is None or moved.axis.isorthogonal(axis):
        return
    located = LocatedCall(op, [("x", x)])
    said = own_rows_summed(op, located.name(0), axis)
    hop = () if moved.site is None else (Hop("positions count from the rank's own part here", moved.site.location()),)
    operand = located.operand(0, axis)
    operand = replace(operand, origin=(*hop, *operand.origin)[:2])
    report(session, located, said, axis, operands=(operand,))
