"""Operators that mix one dim and keep the shape: running sums, sorting, softmax, neighbours."""

from __future__ import annotations

from ..propagation.dim_labels import Call, Dims, Fate, Labeller, Labelling, dims_given, numbered
from ..schema import OpRule, opaque
from ..vocabulary.guards import casts

_RUNNING = "every element needs all that come before it, also those on other ranks"
_SORTED = "the elements of all ranks are sorted together"
EXPONENTIALS = (
    "the exponentials are divided by their sum over the whole dim: all_reduce the largest (op='max') and the sum"
)
_NEIGHBOURS = "neighbours may be on another rank"
_HALVES = "the dim is cut in two halves, which are multiplied: another pairing than within a shard"


def along(why: str, *, default: int | None = -1) -> Labeller:
    """The dim of the parameter ``dim`` is mixed and keeps its place; ``default``: the dim if none is named."""

    def label(call: Call) -> Labelling | None:
        dims = _dims(call, default)
        if dims is None or len(call.tensors) != 1:
            return None
        labels = numbered(call.first.ndim)
        return _mixed((labels,), [labels[dim] for dim in dims], labels, why)

    return label


def _dims(call: Call, default: int | None) -> tuple[int, ...] | None:
    if default is not None and call.get("dim", call.get("axis")) is None:
        return dims_given(Call(call.tensors, {"dim": default}))
    return dims_given(call)


def _mixed(operands: tuple[Dims, ...], mixed: list[str], result: Dims, why: str) -> Labelling:
    return Labelling(operands, (result,), dict.fromkeys(mixed, Fate.OPAQUE), dict.fromkeys(mixed, why))


def _softmax(call: Call) -> Labelling | None:
    """Without a dim, nn.functional takes the first one for 0, 1 and 3 dims and the second one otherwise."""
    return along(EXPONENTIALS, default=0 if call.first.ndim in (0, 1, 3) else 1)(call)


def _softmax_of_two(call: Call) -> Labelling | None:
    """Two operands of one shape, as a mask or a gradient; the dim is the last one unless named."""
    if len(call.tensors) != 2 or call.tensors[1].shape != call.first.shape:
        return None
    dims = dims_given(Call(call.tensors[:1], {"dim": -1 if call.get("dim") is None else call.get("dim")}))
    if dims is None:
        return None
    labels = numbered(call.first.ndim)
    return _mixed((labels, labels), [labels[dim] for dim in dims], labels, EXPONENTIALS)


def _diff(call: Call) -> Labelling | None:
    """What is prepended or appended has the dim too; with ``n=0`` the input comes back as it is."""
    if any(tensor.ndim != call.first.ndim for tensor in call.tensors):
        return None
    labels = numbered(call.first.ndim)
    dims = _dims(Call(call.tensors[:1], call.arguments), -1)
    if dims is None:
        return None
    if call.get("n") == 0:
        beside = tuple(None if dim in dims else label for dim, label in enumerate(labels))
        return Labelling((labels, *(beside,) * (len(call.tensors) - 1)), (labels,))
    return _mixed((labels,) * len(call.tensors), [labels[dim] for dim in dims], labels, _NEIGHBOURS)


def _gradient(call: Call) -> Labelling | None:
    """One result per dim; coordinates are a dim of their own and needed whole."""
    labels = numbered(call.first.ndim)
    dims = dims_given(call)
    if dims is None:
        return None
    points = tuple(numbered(tensor.ndim, f"points{at}.") for at, tensor in enumerate(call.tensors[1:]))
    mixed = [labels[dim] for dim in dims] + [label for row in points for label in row]
    return _mixed((labels, *points), mixed, labels, _NEIGHBOURS)


def _others_mixed(call: Call) -> Labelling | None:
    """renorm: each slice along the dim is scaled by its own norm."""
    dims = dims_given(call)
    if dims is None or len(dims) != 1:
        return None
    labels = numbered(call.first.ndim)
    mixed = [label for at, label in enumerate(labels) if at not in dims]
    return _mixed((labels,), mixed, labels, "the norm is over this rank's elements only")


_SUM_OF_EXPONENTIALS = "normalises by a sum of exponentials"
_BACKWARD = "a backward pass is linear in the gradient that arrives"

RULES = (
    OpRule(
        "cumsum",
        linear="input",
        law="running sums of a sum",
        static=("dtype",),
        guard=casts("dtype"),
        labels=along(_RUNNING),
    ),
    OpRule(
        "diff",
        linear="input + prepend + append",
        law="differences of neighbours; what is prepended or appended must be pending too",
        labels=_diff,
    ),
    OpRule(
        "gradient", "input spacing", "input", law="differences of neighbours divided by distances", labels=_gradient
    ),
    *opaque("is a statistic", "cumprod", labels=along(_RUNNING)),
    *opaque("is an extreme", "cummax cummin", labels=along(_RUNNING)),
    *opaque("is an extreme", "sort argsort", "input dim descending", labels=along(_SORTED)),
    *opaque("is an extreme", "topk", labels=along(_SORTED)),
    *opaque("is an extreme", "msort", labels=along(_SORTED, default=0)),
    *opaque(_SUM_OF_EXPONENTIALS, "logcumsumexp", labels=along(_RUNNING)),
    *opaque(_SUM_OF_EXPONENTIALS, "softmax log_softmax softmin", "input dim", labels=_softmax),
    *opaque(_SUM_OF_EXPONENTIALS, "_softmax _log_softmax _safe_softmax", "input dim", labels=along(EXPONENTIALS)),
    *opaque(_SUM_OF_EXPONENTIALS, "_masked_softmax", "input mask dim", labels=_softmax_of_two),
    *(
        OpRule(
            op,
            "grad_output output dim input_dtype",
            "grad_output",
            law=_BACKWARD,
            source=f"torch.ops.aten.{op}",
            labels=_softmax_of_two,
        )
        for op in ("_softmax_backward_data", "_log_softmax_backward_data")
    ),
    *opaque("is an activation", "glu", labels=along(_HALVES)),
    *opaque("clips", "renorm", labels=_others_mixed),
)
