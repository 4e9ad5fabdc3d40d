"""Elements read and written at given positions along a dim: gather, scatter, index_add, masks.

The dim that positions count is opaque, the dims of the positions are kept where something is read. Where something is
written, other ranks' positions are missing: added up (scatter_add into zeros) that is a pending sum, else nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

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
    numbered,
    singles,
)
from ..schema import TORCHS, Arguments, Decided, Guard, OpRule
from ..vocabulary.guards import floating, only
from ..vocabulary.labellers import tensor_at
from .indexing import KEEP, READS, SELECTS, WRITES, writes

_PICKED = "positions are global, and every shard starts counting at 0: another rank may have the elements meant"
_OVERWRITTEN = "each rank would write its own positions only: gather them first, or add into zeros"
_ORDERED = "elements are taken in order, and how many a shard takes depends on its mask"
_PART = "the index covers a part of the dim only, counted from the start of each shard"


def _dim(call: Call, ndim: int) -> int | None:
    """The dim that positions count along, from the front."""
    dim = call.get("dim")
    return dim_index(dim, ndim) if isinstance(dim, int) and -max(ndim, 1) <= dim < max(ndim, 1) else None


def by_parameter(
    call: Call, rows: dict[str, Dims], result: Dims, fates: dict[Label, Fate], why: dict[Label, str]
) -> Labelling | None:
    """Labels by parameter; None if some tensor is not among them or has other dims."""
    found = [rows.get(tensor.param) for tensor in call.tensors]
    operands = tuple(row for row in found if row is not None)
    if len(operands) != len(call.tensors):
        return None
    if any(len(row) != tensor.ndim for row, tensor in zip(operands, call.tensors, strict=True)):
        return None
    return Labelling(operands, (result,), fates, why)


def _selected(call: Call) -> Labelling | None:
    """index_select: the dim is replaced by the positions."""
    table, index = tensor_at(call, "input"), tensor_at(call, "index")
    if table is None or index is None or not table.ndim or (dim := _dim(call, table.ndim)) is None:
        return None
    source: list[Label | None] = list(numbered(table.ndim))
    source[dim] = "picked"
    result = (*source[:dim], "at", *source[dim + 1 :])
    rows = {"input": tuple(source), "index": ("at",) * index.ndim}
    return by_parameter(call, rows, result, {"picked": Fate.OPAQUE}, {"picked": _PICKED})


def _aligned(
    table: Shape, index: Shape, dim: int, why: dict[Label, str]
) -> tuple[tuple[Label, ...], tuple[Label, ...]] | None:
    """Labels of a tensor and of positions that go with it dim by dim; positions may stop short of a dim's end."""
    if table.ndim != index.ndim:
        return None
    source, at = list(numbered(table.ndim)), list(numbered(table.ndim))
    for other in range(table.ndim):
        if other == dim:
            source[other], at[other] = "picked", "at"
        elif table.shape[other] != index.shape[other]:
            source[other], at[other] = f"longer{other}", f"shorter{other}"
            why |= {source[other]: _PART, at[other]: _PART}
    return tuple(source), tuple(at)


def _gathered(call: Call) -> Labelling | None:
    """``gather(input, dim, index)``: the result has the dims of the index."""
    table, index = tensor_at(call, "input"), tensor_at(call, "index")
    if table is None or index is None or not table.ndim or (dim := _dim(call, table.ndim)) is None:
        return None
    why = {"picked": _PICKED}
    made = _aligned(table, index, dim, why)
    if made is None:
        return None
    rows: dict[str, Dims] = {"input": made[0], "index": made[1]}
    return by_parameter(call, rows, made[1], dict.fromkeys(why, Fate.OPAQUE), why)


def _taken(call: Call) -> Labelling | None:
    """``take(input, index)``: positions in the flattened input."""
    table, index = tensor_at(call, "input"), tensor_at(call, "index")
    if table is None or index is None:
        return None
    source, at = numbered(table.ndim, "picked"), numbered(index.ndim)
    why = dict.fromkeys(source, _PICKED)
    return by_parameter(call, {"input": source, "index": at}, at, dict.fromkeys(why, Fate.OPAQUE), why)


def _taken_along(call: Call) -> Labelling | None:
    """take_along_dim: gather with broadcasting; without a dim, flattened positions in the flattened input."""
    table, index = tensor_at(call, "input"), tensor_at(call, "indices")
    if table is None or index is None:
        return None
    if call.get("dim") is None:
        source, at = numbered(table.ndim, "picked"), numbered(index.ndim)
        why = dict.fromkeys((*source, *at[1:]), _PICKED)
        return by_parameter(call, {"input": source, "indices": at}, at[:1], dict.fromkeys(why, Fate.OPAQUE), why)
    dim = _dim(call, table.ndim)
    if dim is None or table.ndim != index.ndim:
        return None
    (wide, index_row), result = broadcast([(*t.shape[:dim], 1, *t.shape[dim + 1 :]) for t in (table, index)])
    rows: dict[str, Dims] = {
        "input": (*wide[:dim], "picked", *wide[dim + 1 :]),
        "indices": (*index_row[:dim], "at", *index_row[dim + 1 :]),
    }
    kept = (*result[:dim], "at", *result[dim + 1 :])
    made = by_parameter(call, rows, kept, {"picked": Fate.OPAQUE}, {"picked": _PICKED})
    if made is None:
        return None
    stretched = frozenset(pair for pair in singles(made.operands, call.tensors) if pair[1] not in ("picked", "at"))
    return replace(made, spread=stretched)


def _scattered(call: Call) -> Labelling | None:
    """``scatter(input, dim, index, src)``, written over or, by ``reduce``, added to.

    Without ``include_self`` each rank overwrites what its own indices meet, and keeps its part of the rest.
    """
    added = call.get("reduce") in ("add", "sum") and call.get("include_self") is not False
    return _scatter(call, Fate.SUM if added else Fate.OPAQUE)


def _scatter_added(call: Call) -> Labelling | None:
    return _scatter(call, Fate.SUM)


def _scatter(call: Call, fate: Fate) -> Labelling | None:
    table, index = tensor_at(call, "input"), tensor_at(call, "index")
    if table is None or index is None or not table.ndim or (dim := _dim(call, table.ndim)) is None:
        return None
    why = {"picked": _PICKED}
    made = _aligned(table, index, dim, why)
    source = tensor_at(call, "src")
    if made is None:
        return None
    rows: dict[str, Dims] = {"input": made[0], "index": made[1], "value": ()}
    if source is not None:
        if source.ndim != index.ndim:
            return None
        longer = [have != want for have, want in zip(source.shape, index.shape, strict=True)]
        rows["src"] = tuple(f"src{at}" if longer[at] else label for at, label in enumerate(made[1]))
        unread = [label for row in (rows["src"], made[1]) for label, more in zip(row, longer, strict=True) if more]
        why |= {label: _PART for label in unread if label}
    fates = dict.fromkeys(why, Fate.OPAQUE)
    if "at" not in fates:
        fates["at"] = fate
        why["at"] = _OVERWRITTEN
    return by_parameter(call, rows, made[0], fates, why)


def _indexed(fate: Fate) -> Labeller:
    """``index_add(input, dim, index, source)``: a slice of the source for each position."""

    def label(call: Call) -> Labelling | None:
        table, index = tensor_at(call, "input"), tensor_at(call, "index")
        if table is None or index is None or not table.ndim or (dim := _dim(call, table.ndim)) is None:
            return None
        labels = numbered(table.ndim)
        slices: Dims = (*labels[:dim], "at", *labels[dim + 1 :])
        source = tensor_at(call, "source")
        rows: dict[str, Dims] = {
            "input": (*labels[:dim], "picked", *labels[dim + 1 :]),
            "index": ("at",) * index.ndim,
            "source": slices if source is not None and source.ndim else (),
            "value": (),
            "alpha": (),
        }
        why = {"picked": _PICKED, "at": _OVERWRITTEN}
        return by_parameter(call, rows, rows["input"], {"picked": Fate.OPAQUE, "at": fate}, why)

    return label


def _put(call: Call) -> Labelling | None:
    """``put(input, index, source)``: positions in the flattened input; positions and source go together flat."""
    if not call.tensors or call.tensors[0].param != "input":
        return None
    operands = tuple(numbered(tensor.ndim, f"put{at}.") for at, tensor in enumerate(call.tensors))
    why = {label: _PICKED for row in operands for label in row}
    return Labelling(operands, (operands[0],), dict.fromkeys(why, Fate.OPAQUE), why)


def _masked(call: Call) -> Labelling | None:
    """masked_select: row by row, so that shards of the outermost dim give the elements in their order."""
    rows, together = broadcast([tensor.shape for tensor in call.tensors])
    outermost = together[0] if together else None
    why = {label: _ORDERED for row in rows for label in row if label and label != outermost}
    return Labelling(
        tuple(rows),
        ((outermost,),),
        dict.fromkeys(why, Fate.OPAQUE),
        why,
        ragged=frozenset(filter(None, [outermost])),
        spread=singles(rows, call.tensors),
    )


def _masked_away(given: Arguments) -> Decided | None:
    return Decided((given.get("mask"),), (0,), SELECTS, KEEP)


_NOT_A_SUM = "is not a sum"


def _summed(*reductions: str) -> Guard:
    """Only these reductions, and no mean of integers, which each rank rounds."""
    listed, rounded = only("reduce", *reductions, reason=_NOT_A_SUM), floating("a mean of integers is rounded")

    def guard(static: Mapping[str, object]) -> str | None:
        return listed(static) or (rounded(static) if static.get("reduce") == "mean" else None)

    return guard


def _reads(op: str, labels: Labeller, params: str = TORCHS) -> OpRule:
    return OpRule(op, params, "input", law=READS, labels=labels)


def _reduces(op: str, linear: str, guard: Guard, labels: Labeller, params: str = TORCHS) -> OpRule:
    return OpRule(op, params, linear, law=WRITES, static=("reduce",), guard=guard, labels=labels)


RULES = (
    _reads("gather", _gathered),
    _reads("index_select", _selected),
    _reads("take", _taken),
    _reads("take_along_dim", _taken_along),
    OpRule("masked_select", linear="input", law=READS, lengths=_masked_away, labels=_masked),
    writes("index_add", "alpha source", _indexed(Fate.SUM)),
    writes("index_copy", "source", _indexed(Fate.OPAQUE)),
    writes("index_fill", "value", _indexed(Fate.OPAQUE)),
    writes("put", "source", _put),
    writes("scatter_add", "src", _scatter_added),
    _reduces(
        "scatter",
        "input + src + value",
        only("reduce", None, "add", reason=_NOT_A_SUM),
        _scattered,
        "input dim index src value reduce",
    ),
    _reduces("scatter_reduce", "input + src", _summed("sum", "mean"), _scattered),
    _reduces("index_reduce", "input + source", _summed("mean"), _indexed(Fate.OPAQUE)),
)
