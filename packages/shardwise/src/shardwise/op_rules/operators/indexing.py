"""Reading and writing by ``[...]``, and slices and diagonals written into a copy.

``x[i, :, j]``: a dim taken by a number, a part of a range, or a tensor of positions is opaque, since positions are
global and a shard starts at 0. Whole ranges keep their dims. Index tensors are broadcast together and their dims are
kept: they stand where the indices stood if those are neighbours, else in front. A mask takes as many dims as it has.

All are linear in what is read and written, not in the positions. A write into a pending sum must write a pending sum,
or zero; a write elsewhere leaves the destination's value in place.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ..propagation.dim_labels import (
    Call,
    Dims,
    Fate,
    Label,
    Labeller,
    Labelling,
    Shape,
    broadcast,
    dim_index,
    dims_given,
    numbered,
    singles,
)
from ..schema import TORCHS, Arguments, Decided, OpRule, opaque
from ..vocabulary.guards import casts

READS = "reads elements at positions that are equal on every rank"
WRITES = "writes into a pending sum must be pending too, or each rank's copy is counted"
SELECTS = "one entry for each element that the mask selects"
KEEP = "keep the rows that are not meant: torch.where(mask, x, 0) in place of x[mask], or a fixed capacity"

_PICKED = "positions are global, and every shard starts counting at 0: another rank may have the elements meant"
_MASKED = "how many elements a mask picks differs from shard to shard"
_OVERWRITTEN = "each rank would write its own positions only: add them up (accumulate=True) or gather them first"
_WHOLE = slice(None)


@dataclass
class _Plan:
    """What an index does: labels of the indexed tensor, of the index tensors, and of what is read or written."""

    source: Dims
    result: Dims
    indices: list[tuple[Any, Dims]]
    why: dict[Label, str] = field(default_factory=dict)
    picked: frozenset[Label] = frozenset()
    """Labels of the index tensors' own dims."""
    place: int = 0
    """The dim of the result at which the index tensors' dims are."""


def planned(shape: Sequence[int], index: object) -> _Plan | None:
    """The plan for ``x[index]``, ``x`` of this shape; None if the index is of an unknown sort."""
    items = _spelled_out(list(index) if isinstance(index, tuple) else [index], len(shape))
    if items is None:
        return None
    source = numbered(len(shape))
    why: dict[Label, str] = {}
    result: list[Label | None] = []
    advanced: list[tuple[int, Any, Dims]] = []
    """For every tensor of positions or mask: where it stands in the result, itself, and the dims it takes."""
    dims = iter(range(len(shape)))
    for item in items:
        if item is None:
            result.append(None)
            continue
        taken: Dims = tuple(source[dim] for dim in itertools.islice(dims, _takes(item)))
        if isinstance(item, slice) and _is_whole(item, shape[int(str(taken[0])[1:])]):
            result.append(taken[0])
            continue
        why |= dict.fromkeys([label for label in taken if label], _MASKED if _is_mask(item) else _PICKED)
        if isinstance(item, slice):
            result.append(None)
        elif not isinstance(item, int) or isinstance(item, bool):
            advanced.append((len(result), item, taken))
    return _with_indices(source, result, advanced, why)


def _with_indices(
    source: Dims, result: list[Label | None], advanced: list[tuple[int, object, Dims]], why: dict[Label, str]
) -> _Plan:
    """Put the dims of the index tensors into the result."""
    masks = any(_is_mask(item) for _, item, _ in advanced)
    rows, spread = broadcast([() if _is_mask(item) else _shape(item) for _, item, _ in advanced])
    rename = {label: f"at.{label}" for label in spread if label is not None}
    own = [
        taken if _is_mask(item) else tuple(label and rename[label] for label in row)
        for (_, item, taken), row in zip(advanced, rows, strict=True)
    ]
    inserted: list[Label | None] = [label and rename[label] for label in spread]
    if masks and not inserted:
        inserted = [None]
    places = {place for place, item, _ in advanced if not _is_number(item)}
    at = places.pop() if len(places) == 1 else 0
    if masks:  # the positions that a mask picks are broadcast with the others
        why = why | dict.fromkeys(rename.values(), _MASKED)
    indices = [(item, row) for (_, item, _), row in zip(advanced, own, strict=True)]
    return _Plan(source, (*result[:at], *inserted, *result[at:]), indices, why, frozenset(rename.values()), at)


def _spelled_out(items: list[object], ndim: int) -> list[object] | None:
    """The items with the ellipsis, or its absence, replaced by whole ranges; None if one is of an unknown sort."""
    if not all(_is_known(item) for item in items):
        return None
    missing = ndim - sum(_takes(item) for item in items if item is not Ellipsis)
    at = next((at for at, item in enumerate(items) if item is Ellipsis), None)
    if missing < 0:
        return None
    if at is None:
        return [*items, *[_WHOLE] * missing]
    return [*items[:at], *[_WHOLE] * missing, *items[at + 1 :]]


def _is_known(item: object) -> bool:
    if isinstance(item, list):
        return all(isinstance(one, (int, list)) and _is_known(one) for one in item)
    return item is None or item is Ellipsis or isinstance(item, (int, slice)) or hasattr(item, "shape")


def _is_number(item: object) -> bool:
    """A position: an int, or a tensor without dims."""
    return not _is_mask(item) and not isinstance(item, (list, slice)) and _shape(item) == ()


def _is_mask(item: object) -> bool:
    return isinstance(item, bool) or "bool" in str(getattr(item, "dtype", "")) or _holds_truth(item)


def _holds_truth(item: object) -> bool:
    """True for a nested list of truth values."""
    while isinstance(item, list) and item:
        item = item[0]
    return isinstance(item, bool)


def _shape(item: object) -> tuple[int, ...]:
    if isinstance(item, list):
        return (len(item), *(_shape(item[0]) if item else ()))
    return tuple(getattr(item, "shape", ()))


def _takes(item: object) -> int:
    """How many dims of the indexed tensor the item takes."""
    if item is None:
        return 0
    return len(_shape(item)) if _is_mask(item) else 1


def _is_whole(item: slice, size: int) -> bool:
    """True if the range is all of the dim, whatever its size: a bound that happens to be this shard's is not."""
    return item.start in (None, 0) and item.step in (None, 1) and (item.stop is None or item.stop == sys.maxsize)


def _read(call: Call) -> Labelling | None:
    return _reading(call, call.get("index"))


def _read_aten(call: Call) -> Labelling | None:
    """``index(x, indices)``, where None is a whole range."""
    return _reading(call, _whole_for_none(call.get("indices")))


def _whole_for_none(indices: Sequence[object] | Shape | None) -> tuple[object, ...]:
    if isinstance(indices, Shape):
        return (indices,)
    return tuple(_WHOLE if item is None else item for item in indices or ())


def _reading(call: Call, index: object) -> Labelling | None:
    plan = planned(call.first.shape, index)
    if plan is None:
        return None
    rows = [plan.source, *(row for _, row in _tensors(plan))]
    if len(rows) != len(call.tensors):
        return None
    result, why, order = plan.result, plan.why, _in_order(plan)
    if order is not None:
        result = (*result[: plan.place], order, *result[plan.place + 1 :])
        why = {label: reason for label, reason in why.items() if label != order}
    ragged = frozenset(filter(None, [order]))
    fates = dict.fromkeys(why, Fate.OPAQUE)
    return Labelling(tuple(rows), (result,), fates, why, ragged=ragged, spread=_spread(plan, rows, call))


def _in_order(plan: _Plan) -> Label | None:
    """The outermost dim of a mask that picks alone: shards along it have the elements picked in their order."""
    if len(plan.indices) != 1:
        return None
    mask, row = plan.indices[0]
    return row[0] if isinstance(mask, Shape) and _is_mask(mask) and row else None


def _tensors(plan: _Plan) -> list[tuple[Shape, Dims]]:
    """The index tensors and their labels; a list of numbers is no operand."""
    return [(item, row) for item, row in plan.indices if isinstance(item, Shape)]


def _spread(plan: _Plan, rows: Sequence[Dims], call: Call) -> frozenset[tuple[int, Label]]:
    """Index tensors and what is written are broadcast; a mask is not."""
    masks = {at for at, (item, _) in enumerate(_tensors(plan), start=1) if _is_mask(item)}
    return frozenset(pair for pair in singles(rows, call.tensors) if pair[0] != 0 and pair[0] not in masks)


def _write(call: Call) -> Labelling | None:
    return _writing(call, call.get("index"), call.get("value"), accumulate=False)


def _write_aten(call: Call) -> Labelling | None:
    return _writing(
        call, _whole_for_none(call.get("indices")), call.get("values"), accumulate=bool(call.get("accumulate"))
    )


def _writing(call: Call, index: object, value: object, *, accumulate: bool) -> Labelling | None:
    """The result is the destination; what is written has the dims of what is read, right-aligned and broadcast."""
    plan = planned(call.first.shape, index)
    if plan is None:
        return None
    rows = [plan.source, *(row for _, row in _tensors(plan))]
    if isinstance(value, Shape):
        rows.append(_written(plan, call, value))
    if len(rows) != len(call.tensors):
        return None
    why = dict(plan.why)
    if _fills(plan, value):
        why = {label: reason for label, reason in why.items() if reason != _MASKED}
    fates = dict.fromkeys(why, Fate.OPAQUE)
    for label in plan.picked - set(why):
        fates[label] = Fate.SUM if accumulate else Fate.OPAQUE
        why[label] = _OVERWRITTEN
    return Labelling(tuple(rows), (plan.source,), fates, why, spread=_spread(plan, rows, call))


def _fills(plan: _Plan, value: object) -> bool:
    """True if a mask alone says where and one value goes everywhere: then each element is written or left by itself."""
    if len(plan.indices) != 1 or not _is_mask(plan.indices[0][0]):
        return False
    behind = len(plan.result) - plan.place  # counted from the right, as broadcasting does
    return not isinstance(value, Shape) or value.ndim < behind or value.shape[-behind] == 1


def _written(plan: _Plan, call: Call, value: Shape) -> Dims:
    """Labels of what is written; a dim of size 1 counts as broadcast unless the dim it is written to has size 1 too."""
    sizes = dict(zip(plan.source, call.first.shape, strict=True))
    for item, row in plan.indices:
        if not _is_mask(item):
            for label, extent in zip(row, _shape(item), strict=True):
                sizes[label] = max(extent, sizes.get(label, 1))
    behind = (*(None,) * value.ndim, *plan.result)[-value.ndim :] if value.ndim else ()
    return tuple(
        None if label is None or (extent == 1 and sizes.get(label, 1) != 1) else label
        for label, extent in zip(behind, value.shape, strict=True)
    )


def _read_where(call: Call) -> Labelling | None:
    """``_unsafe_masked_index``: a position for every dim, and a mask of the result that says where one counts."""
    if len(call.tensors) != call.first.ndim + 2:
        return None
    rows, result = broadcast([tensor.shape for tensor in call.tensors[1:]])
    source = numbered(call.first.ndim)
    why = dict.fromkeys(source, _PICKED)
    spread = frozenset((at + 1, label) for at, label in singles(rows, call.tensors[1:]))
    return Labelling((source, *rows), (result,), dict.fromkeys(source, Fate.OPAQUE), why, spread=spread)


_PART = "positions are counted from the start of each shard, so the write lands in every shard"
_STRIDES = "memory is addressed by strides, which say nothing about dims"


def _replaced(call: Call, gone: tuple[int, ...], behind: Dims, why: str = _PART) -> Labelling | None:
    """The source has the dims of the input but ``gone``, and ``behind`` after them."""
    if len(call.tensors) > 2:
        return None
    labels = numbered(call.first.ndim)
    opaque: set[Label] = {labels[dim] for dim in gone} | {label for label in behind if label}
    rows: list[Dims] = [labels, (*(label for at, label in enumerate(labels) if at not in gone), *behind)]
    if any(len(row) != tensor.ndim for row, tensor in zip(rows, call.tensors, strict=False)):
        return None
    reasons = dict.fromkeys(opaque, why)
    return Labelling(tuple(rows[: len(call.tensors)]), (labels,), dict.fromkeys(opaque, Fate.OPAQUE), reasons)


def _selected(call: Call) -> Labelling | None:
    gone = dims_given(call)
    return None if gone is None or len(gone) != 1 else _replaced(call, gone, ())


def _sliced(call: Call) -> Labelling | None:
    """A range of the dim; all of it is the source itself, dim by dim."""
    labels = numbered(call.first.ndim)
    dim = dim_index(call.get("dim", 0), call.first.ndim)
    if any(tensor.ndim != len(labels) for tensor in call.tensors) or not 0 <= dim < len(labels):
        return None
    whole = call.get("start") in (None, 0) and call.get("end") in (None, sys.maxsize) and call.get("step", 1) == 1
    if whole:
        return Labelling((labels,) * len(call.tensors), (labels,))
    other = (*labels[:dim], "part", *labels[dim + 1 :])
    why = {labels[dim]: _PART, "part": _PART}
    rows = (labels, other)[: len(call.tensors)]
    return Labelling(rows, (labels,), dict.fromkeys(why, Fate.OPAQUE), why)


def _diagonal(call: Call) -> Labelling | None:
    ndim = call.first.ndim
    first, second = dim_index(call.get("dim1", 0), ndim), dim_index(call.get("dim2", 1), ndim)
    return _replaced(call, (first, second), ("diagonal",))


def _filled(call: Call) -> Labelling | None:
    """fill_diagonal_: the diagonal runs through all dims."""
    labels = numbered(call.first.ndim)
    rows = (labels, *((),) * (len(call.tensors) - 1))
    return Labelling(rows, (labels,), dict.fromkeys(labels, Fate.POSITION))


def _strided(call: Call) -> Labelling | None:
    rows = tuple(numbered(tensor.ndim, f"x{at}.") for at, tensor in enumerate(call.tensors))
    why = {label: _STRIDES for row in rows for label in row}
    return Labelling(rows, (rows[0],), dict.fromkeys(why, Fate.OPAQUE), why)


def _found(given: Arguments) -> Decided | None:
    index = given.get("index")
    if _picks(index):
        return Decided((index,), (0,), SELECTS, KEEP)
    items = index if isinstance(index, tuple) else (index,)
    masks = tuple(item for item in items if _picks(item))
    plan = planned(given["input"].shape, index) if masks and "input" in given else None
    return None if plan is None else Decided(masks, (plan.place,), SELECTS, KEEP)


def _picks(item: object) -> bool:
    return str(getattr(item, "dtype", "")) == "torch.bool"


def writes(op: str, source: str, labels: Labeller, *spellings: str, params: str = TORCHS) -> OpRule:
    """An operator that writes ``source``, a term of the sum, into a copy of its input."""
    return OpRule(op, params, f"input + {source}", law=WRITES, spellings=spellings, labels=labels)


RULES = (
    OpRule(
        "getitem",
        "input index",
        "input",
        law=READS,
        source="torch.Tensor.__getitem__",
        view=True,
        lengths=_found,
        labels=_read,
    ),
    OpRule("index", "input indices", "input", law=READS, spellings=("_unsafe_index",), labels=_read_aten),
    OpRule(
        "setitem",
        "input index value",
        "input + value",
        law=WRITES,
        source="torch.Tensor.__setitem__",
        static=("input",),
        guard=casts("input", source="value"),
        labels=_write,
    ),
    writes("index_put", "values", _write_aten, "_index_put_impl", "_unsafe_index_put"),
    writes("diagonal_scatter", "src", _diagonal),
    writes("select_scatter", "src", _selected),
    writes("slice_scatter", "src", _sliced),
    writes("as_strided_scatter", "src", _strided),
    writes("fill_diagonal_", "fill_value", _filled),
    *opaque("masks inside compiled code", "_unsafe_masked_index", "input mask indices fill", labels=_read_where),
)
