"""Reductions: what is left of a dim that is reduced is a pending sum, or nothing that a shard could compute alone.

A reduction names its dims (an int, a list, nothing for all) and whether they stay with size 1. Its ``Fate`` says how
elements combine; the other dims are kept. Sums and means commute with a pending sum; extremes, norms and variances do
not, nor do ``nansum`` and ``nanmean``: which elements they skip is decided on each rank's part.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from ..propagation.dim_labels import (
    Call,
    Dims,
    Fate,
    Label,
    Labeller,
    Labelling,
    broadcast,
    dims_given,
    numbered,
    singles,
)
from ..schema import TORCHS, Arguments, Decided, Guard, OpRule, opaque
from ..vocabulary.guards import casts, is_bool
from ..vocabulary.norms import euclidean_only, is_euclidean

_POSITION = "the position is counted from the start of the shard"
_DEVIATION = "the deviation is from the mean of this rank's elements only"
_MEDIAN = "the elements of all ranks are sorted together"
_EXPONENTIALS = "the exponentials of all ranks are summed before the logarithm"
_POWERS = "the powers of all ranks are summed before the root"


def reduced(labels: Dims, dims: tuple[int, ...], keepdim: bool) -> Dims:
    """What is left of ``labels`` when ``dims`` are reduced."""
    kept = (None if dim in dims else label for dim, label in enumerate(labels))
    return tuple(label for dim, label in enumerate(kept) if keepdim or dim not in dims)


def reduces(fate: Fate, why: str = "", default: int | None = None) -> Labeller:
    """The labeller of a reduction with parameters ``dim`` and ``keepdim``; ``default``: the dim if none is named."""

    def label(call: Call) -> Labelling | None:
        given = call
        if default is not None and call.get("dim", call.get("axis")) is None:
            given = Call(call.tensors, {**call.arguments, "dim": default})
        dims = dims_given(given)
        if dims is None or len(call.tensors) != 1:
            return None
        labels = numbered(call.first.ndim)
        gone = [labels[dim] for dim in dims]
        left = reduced(labels, dims, _keeps(call))
        return Labelling((labels,), (left,), dict.fromkeys(gone, fate), dict.fromkeys(gone, why) if why else {})

    return label


def _keeps(call: Call) -> bool:
    return bool(call.get("keepdim", call.get("keepdims", False)))


def _larger(fate: Fate, call: Call) -> Labelling | None:
    """max and min: of two tensors, along a dim, or of everything."""
    if len(call.tensors) == 2:
        rows, result = broadcast([tensor.shape for tensor in call.tensors])
        return Labelling(tuple(rows), (result,), spread=singles(rows, call.tensors))
    other = call.get("dim", call.get("other"))
    arguments = {"dim": other, "keepdim": call.get("keepdim", False)}
    return reduces(fate)(Call(call.tensors, arguments))


def _positions(given: Arguments) -> str | None:
    """max and min along a dim have a second result, the positions, which of a pending maximum are each rank's own."""
    along = any(isinstance(given.get(name), (int, str)) for name in ("dim", "other"))
    return "gives positions too, which are each rank's own; amax and amin give none" if along else None


def _larger_of(op: str, fate: Fate) -> tuple[OpRule, ...]:
    """max or min; the second parameter is a tensor or a dim."""
    rules = opaque(_EXTREME, op, "input other keepdim", labels=partial(_larger, fate))
    return tuple(replace(rule, static=("dim", "other"), guard=_positions) for rule in rules)


def _asked(op: str, fate: Fate) -> OpRule:
    """any or all: the maximum or the minimum of truth values. Of numbers, -1 is as true as 1, so no extreme decides."""

    def guard(given: Arguments) -> str | None:
        truths = is_bool(given.get("dtypes", {}).get("input", "float32"))
        return None if truths else "asks of each rank's part whether it is zero; compare with a number first"

    return replace(opaque(_STATISTIC, op, labels=reduces(fate))[0], guard=guard)


def _powers(order: object) -> Fate:
    """How a vector norm combines the elements: absolute values and non-zeros are summed, the largest is picked."""
    if is_euclidean(order):
        return Fate.NORM
    if isinstance(order, (int, float)):
        if order in (0, 1):
            return Fate.TOTAL
        if math.isinf(order):
            return Fate.MAXIMUM if order > 0 else Fate.MINIMUM
    return Fate.OPAQUE


def norm_of(name: str) -> Labeller:
    """The labeller of a vector norm, whose order is the parameter ``name``."""

    def label(call: Call) -> Labelling | None:
        fate = _powers(call.get(name, 2))
        return reduces(fate, _POWERS if fate is Fate.OPAQUE else "")(call)

    return label


def _distance(reduces_dim: Callable[[Call, int], int | None], order: str = "p") -> Labeller:
    """A norm of a difference of two tensors, along the dim that ``reduces_dim`` gives; None: along all."""

    def label(call: Call) -> Labelling | None:
        if len(call.tensors) != 2:
            return None
        rows, result = broadcast([tensor.shape for tensor in call.tensors])
        dim = reduces_dim(call, len(result))
        dims = tuple(range(len(result))) if dim is None else (dim,)
        if not all(0 <= at < len(result) for at in dims):
            return None
        fate = _powers(call.get(order, 2)) if order else Fate.OPAQUE
        gone = [label for at in dims if (label := result[at]) is not None]
        why = dict.fromkeys(gone, _POWERS) if fate is Fate.OPAQUE else {}
        left = reduced(result, dims, _keeps(call))
        spread = singles(rows, call.tensors)
        return Labelling(tuple(rows), (left,), dict.fromkeys(gone, fate), why, spread=spread)

    return label


def _pairs(call: Call) -> Labelling | None:
    """cdist: rows of the one with rows of the other, along features."""
    if len(call.tensors) != 2 or min(tensor.ndim for tensor in call.tensors) < 2:
        return None
    rows, lead = broadcast([tensor.shape[:-2] for tensor in call.tensors])
    fate = _powers(call.get("p", 2))
    operands = (*rows[0], "one", "features"), (*rows[1], "other", "features")
    batched = {label for label in lead if label is not None}
    spread = frozenset(pair for pair in singles(operands, call.tensors) if pair[1] in batched)
    return Labelling(operands, ((*lead, "one", "other"),), {"features": fate}, spread=spread)


def _pairs_of_rows(call: Call) -> Labelling | None:
    """pdist: every row with every later one, along features."""
    if call.first.ndim != 2:
        return None
    fates = {"row": Fate.OPAQUE, "feature": _powers(call.get("p", 2))}
    why = {label: _POWERS for label, fate in fates.items() if fate is Fate.OPAQUE}
    return Labelling((("row", "feature"),), ((None,),), fates, why)


def _quantile(call: Call) -> Labelling | None:
    """Several quantiles make a new first dim."""
    inner = reduces(Fate.OPAQUE, _MEDIAN)(Call(call.tensors[:1], call.arguments))
    if inner is None or len(call.tensors) == 1:
        return inner
    if len(call.tensors) != 2:
        return None
    asked = numbered(call.tensors[1].ndim, "q")
    return replace(inner, operands=(*inner.operands, asked), results=((*asked, *inner.results[0]),))


def _all_dims(fate: Fate) -> Labeller:
    """Everything is mixed, and the results have dims of their own."""

    def label(call: Call) -> Labelling | None:
        labels = [numbered(tensor.ndim, f"t{at}.") for at, tensor in enumerate(call.tensors)]
        every: list[Label] = [label for row in labels for label in row]
        return Labelling(tuple(labels), ((),), dict.fromkeys(every, fate))

    return label


def _to_size(call: Call) -> Labelling | None:
    """sum_to_size: the dims that broadcasting would add are summed."""
    size = call.get("size")
    if isinstance(size, int):
        size = [size, *(value for name, value in call.arguments.items() if name.startswith("args["))]
    if size is None or len(size) > call.first.ndim:
        return None
    labels = numbered(call.first.ndim)
    extra = call.first.ndim - len(size)
    left: list[Label | None] = []
    unclear = []
    for label, wanted, has in zip(labels[extra:], size, call.first.shape[extra:], strict=True):
        left.append(None if wanted == 1 else label)
        if wanted == has == 1:
            unclear.append(label)
    why = dict.fromkeys(unclear, "a shard of size 1 may be meant to stay or to be summed")
    return Labelling((labels,), (tuple(left),), dict.fromkeys(unclear, Fate.OPAQUE), why)


def _counted(call: Call) -> Labelling | None:
    """histc counts; without limits, the bins depend on all elements."""
    low, high = call.get("min", 0), call.get("max", 0)
    return _with_result(_all_dims(Fate.OPAQUE if low == high else Fate.TOTAL)(call), (None,))


def _binned(call: Call) -> Labelling | None:
    """bincount: every rank counts its own elements; without ``minlength`` the number of bins is in the values."""
    if not call.get("minlength"):
        return _with_result(_all_dims(Fate.OPAQUE)(call), (None,))
    elements = numbered(1)
    if any(tensor.ndim != 1 for tensor in call.tensors):
        return None
    return Labelling((elements,) * len(call.tensors), ((None,),), dict.fromkeys(elements, Fate.TOTAL))


def _with_result(labelling: Labelling | None, result: Dims) -> Labelling | None:
    return None if labelling is None else replace(labelling, results=(result,))


def _distinct(given: Arguments) -> Decided | None:
    dim = given.get("dim")
    values = 0 if dim is None else dim
    return Decided(
        (given.get("input"),),
        (values, *(None,) * bool(given.get("return_inverse")), *(0,) * bool(given.get("return_counts"))),
        "one entry for each distinct value",
        "count in bins that are the same on every rank: torch.bincount(..., minlength=...) or torch.histc",
    )


def _bins(given: Arguments) -> Decided | None:
    if given.get("minlength"):
        return None
    return Decided((given.get("input"),), (0,), "one bin more than the largest value", "bincount(..., minlength=...)")


def _summed(op: str, law: str, labels: Labeller) -> OpRule:
    params = "input dim keepdim dtype"
    return OpRule(op, params, "input", law=law, static=("dtype",), guard=casts("dtype"), labels=labels)


def euclidean(
    op: str, params: str, labels: Labeller, *, static: tuple[str, ...], guard: Guard = euclidean_only
) -> OpRule:
    """A norm with an order, which ``static`` names."""
    law = "is a norm: a pending sum does not pass, and a pending norm does through one of order 2"
    return OpRule(op, params, law=law, static=static, guard=guard, labels=labels)


_MIXED = _all_dims(Fate.OPAQUE)
_COUNTED = "the mean is over the elements of this rank that are numbers"
_NORM, _EXTREME, _STATISTIC = "is a norm or a distance", "is an extreme", "is a statistic"

RULES = (
    _summed("sum", "a sum of sums is the sum of everything", reduces(Fate.SUM)),
    _summed("mean", "a sum divided by a count that is the same on every rank", reduces(Fate.MEAN)),
    OpRule("sum_to_size", linear="input", law="sums over broadcast dims", view=True, labels=_to_size),
    OpRule("trace", linear="input", law="a sum along the diagonal", labels=_MIXED),
    OpRule(
        "bincount",
        linear="weights",
        law="weights summed by bin; which bin is not linear",
        lengths=_bins,
        labels=_binned,
    ),
    *opaque(_STATISTIC, "nansum count_nonzero", "input dim keepdim", labels=reduces(Fate.TOTAL)),
    *opaque(_STATISTIC, "nanmean", labels=reduces(Fate.OPAQUE, _COUNTED)),
    *opaque(_STATISTIC, "prod", labels=reduces(Fate.EXTREMUM)),
    _asked("any", Fate.MAXIMUM),
    _asked("all", Fate.MINIMUM),
    *opaque(_STATISTIC, "var std var_mean std_mean", labels=reduces(Fate.OPAQUE, _DEVIATION)),
    *opaque(_STATISTIC, "cov corrcoef histogram histogramdd", labels=_MIXED),
    *opaque(_STATISTIC, "histc", labels=_counted),
    *opaque(_STATISTIC, "hash_tensor", labels=reduces(Fate.OPAQUE)),
    *opaque(_EXTREME, "amax", labels=reduces(Fate.MAXIMUM)),
    *opaque(_EXTREME, "amin aminmax", labels=reduces(Fate.MINIMUM)),
    *opaque(_EXTREME, "argmax argmin", labels=reduces(Fate.OPAQUE, _POSITION)),
    *_larger_of("max", Fate.MAXIMUM),
    *_larger_of("min", Fate.MINIMUM),
    *opaque(_EXTREME, "median nanmedian", labels=reduces(Fate.OPAQUE, _MEDIAN)),
    *opaque(_EXTREME, "mode kthvalue", labels=reduces(Fate.OPAQUE, _MEDIAN, default=-1)),
    *opaque(_EXTREME, "quantile nanquantile", labels=_quantile),
    *opaque("normalises by a sum of exponentials", "logsumexp", labels=reduces(Fate.OPAQUE, _EXPONENTIALS)),
    euclidean("norm", "input p dim keepdim", norm_of("p"), static=("p",)),
    euclidean("linalg.vector_norm", TORCHS, norm_of("ord"), static=("ord",)),
    *opaque(_NORM, "native_norm", "input p dim keepdim", labels=norm_of("p")),
    *opaque(_NORM, "frobenius_norm", "input dim keepdim", labels=reduces(Fate.NORM)),
    *opaque(_NORM, "nuclear_norm", "input dim keepdim", labels=reduces(Fate.OPAQUE, _POWERS)),
    *opaque(_NORM, "dist", labels=_distance(lambda call, ndim: None)),
    *opaque(_NORM, "pairwise_distance", labels=_distance(lambda call, ndim: ndim - 1)),
    *opaque(
        "normalises by its own statistics",
        "cosine_similarity",
        labels=_distance(lambda call, ndim: call.get("dim", 1) % max(ndim, 1), order=""),
    ),
    *opaque(_NORM, "cdist", labels=_pairs),
    *opaque(_NORM, "pdist", labels=_pairs_of_rows),
    *(
        OpRule(
            op, law="has a shape that depends on values: a pending sum does not pass", lengths=lengths, labels=_MIXED
        )
        for op, lengths in (
            ("unique", _distinct),
            ("unique_consecutive", _distinct),
            ("_unique2", None),
            ("unique_dim", None),
        )
    ),
)
