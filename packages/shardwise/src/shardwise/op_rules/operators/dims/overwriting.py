"""Slices and diagonals written into a copy: other dims are kept, the one that is cut counts positions."""

from __future__ import annotations

import sys

from ...propagation.dim_labels import Call, Dims, Fate, Label, Labeller, Labelling, dim_index, dims_given, numbered

_PART = "positions are counted from the start of each shard, so the write lands in every shard"
_STRIDES = "memory is addressed by strides, which say nothing about dims"


def _written(call: Call, gone: tuple[int, ...], behind: Dims, why: str = _PART) -> Labelling | None:
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
    return None if gone is None or len(gone) != 1 else _written(call, gone, ())


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
    return _written(call, (first, second), ("diagonal",))


def _filled(call: Call) -> Labelling | None:
    """fill_diagonal_: the diagonal runs through all dims."""
    labels = numbered(call.first.ndim)
    rows = (labels, *((),) * (len(call.tensors) - 1))
    return Labelling(rows, (labels,), dict.fromkeys(labels, Fate.POSITION))


def _strided(call: Call) -> Labelling | None:
    rows = tuple(numbered(tensor.ndim, f"x{at}.") for at, tensor in enumerate(call.tensors))
    why = {label: _STRIDES for row in rows for label in row}
    return Labelling(rows, (rows[0],), dict.fromkeys(why, Fate.OPAQUE), why)


LABELS: dict[str, Labeller] = {
    "select_scatter": _selected,
    "slice_scatter": _sliced,
    "diagonal_scatter": _diagonal,
    "as_strided_scatter": _strided,
    "fill_diagonal_": _filled,
}
