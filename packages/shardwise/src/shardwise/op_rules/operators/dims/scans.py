"""Along which dim do elements see each other while the shape stays? Running sums, sorting, softmax, neighbours."""

from __future__ import annotations

from ...propagation.dim_labels import Call, Dims, Fate, Labeller, Labelling, dims_given, numbered

_RUNNING = "every element needs all that come before it, also those on other ranks"
_SORTED = "the elements of all ranks are sorted together"
_EXPONENTIALS = (
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
    return along(_EXPONENTIALS, default=0 if call.first.ndim in (0, 1, 3) else 1)(call)


def _softmax_of_two(call: Call) -> Labelling | None:
    """Two operands of one shape, as a mask or a gradient; the dim is the last one unless named."""
    if len(call.tensors) != 2 or call.tensors[1].shape != call.first.shape:
        return None
    dims = dims_given(Call(call.tensors[:1], {"dim": -1 if call.get("dim") is None else call.get("dim")}))
    if dims is None:
        return None
    labels = numbered(call.first.ndim)
    return _mixed((labels, labels), [labels[dim] for dim in dims], labels, _EXPONENTIALS)


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


def _last_is_drawn(call: Call) -> Labelling | None:
    """A draw from each row of weights."""
    if not call.first.ndim or len(call.tensors) != 1:
        return None
    labels = numbered(call.first.ndim)
    return _mixed((labels,), [labels[-1]], (*labels[:-1], None), "one draw is among the weights of all ranks")


def _dirichlet(call: Call) -> Labelling | None:
    labels = numbered(call.first.ndim)
    return _mixed((labels,), list(labels[-1:]), labels, "the draws along the dim sum to one")


def _others_mixed(call: Call) -> Labelling | None:
    """renorm: each slice along the dim is scaled by its own norm."""
    dims = dims_given(call)
    if dims is None or len(dims) != 1:
        return None
    labels = numbered(call.first.ndim)
    mixed = [label for at, label in enumerate(labels) if at not in dims]
    return _mixed((labels,), mixed, labels, "the norm is over this rank's elements only")


_BY_DIM = {
    "cumsum cumprod cummax cummin logcumsumexp": along(_RUNNING),
    "sort argsort topk": along(_SORTED),
    "softmax log_softmax softmin special.softmax special.log_softmax": _softmax,
    "_softmax _log_softmax _safe_softmax gumbel_softmax": along(_EXPONENTIALS),
}

LABELS: dict[str, Labeller] = {
    **{name: labeller for names, labeller in _BY_DIM.items() for name in names.split()},
    "msort": along(_SORTED, default=0),
    "_masked_softmax": _softmax_of_two,
    "_softmax_backward_data": _softmax_of_two,
    "_log_softmax_backward_data": _softmax_of_two,
    "glu": along(_HALVES),
    "diff": _diff,
    "gradient": _gradient,
    "renorm": _others_mixed,
    "multinomial": _last_is_drawn,
    "_sample_dirichlet": _dirichlet,
}
