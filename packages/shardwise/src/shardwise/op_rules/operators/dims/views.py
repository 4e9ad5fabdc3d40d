"""Views that regroup, insert, drop or stretch dims. Sizes are one rank's; ``reshaped_dims.py`` lines dims up."""

from __future__ import annotations

from collections.abc import Sequence

from ...propagation.dim_labels import Call, Labeller, Labelling, Shape, dim_index
from ...propagation.reshaped_dims import Reshaped, reshape
from ..moves import argument, dims_of, kept, listed, moved, positional, wrapped

_SQUEEZED = "its size on this rank is 1, but not the whole dim's, which cannot be dropped"
_STRIDED = "it reads memory by strides, which say nothing about dims"
_BITS = "its two elements are one complex number"


def _reshaped(call: Call) -> Labelling | None:
    """``view``, ``reshape``: sizes, or a dtype, which may only make the last dim finer or coarser."""
    if _is_dtype(argument(call, "dtype", "shape")):
        return kept(call, grouped=[call.first.ndim - 1])
    return _regrouped(call, listed(call, "shape", "size"))


def _is_dtype(value: object) -> bool:
    return type(value).__name__ == "dtype"


def _like_other(call: Call) -> Labelling | None:
    other = call.get("other")
    return _regrouped(call, list(other.shape)) if isinstance(other, Shape) else None


def _regrouped(call: Call, sizes: Sequence[int] | None) -> Labelling | None:
    found = None if sizes is None else reshape(call.first.shape, sizes)
    if found is None:
        return None
    return moved(call, found.target, found.ndim, found.why, even=found.even, grouped=found.grouped)


def _flattened(call: Call) -> Labelling | None:
    ndim = call.first.ndim
    first = wrapped(call.get("start_dim", 0), ndim)
    last = wrapped(call.get("end_dim", -1), ndim)
    # An empty dim counts as any other: what is merged is known.
    merged = reshape([size or 2 for size in call.first.shape[first : last + 1]], [-1])
    return None if merged is None else _spliced(call, first, last + 1, merged)


def _unflattened(call: Call) -> Labelling | None:
    ndim = call.first.ndim
    dim = wrapped(call.get("dim", 0), ndim)
    sizes = call.get("sizes", ())
    split = reshape(call.first.shape[dim : dim + 1], sizes if isinstance(sizes, Sequence) else [sizes])
    return None if split is None else _spliced(call, dim, dim + 1, split)


def _spliced(call: Call, start: int, stop: int, inner: Reshaped) -> Labelling:
    """Dims from ``start`` to before ``stop`` are regrouped; those around them stay."""
    ndim = call.first.ndim
    stop = min(stop, ndim)
    shift = inner.ndim - (stop - start)
    target = {dim: dim for dim in range(start)}
    target |= {dim + start: to + start for dim, to in inner.target.items()}
    target |= {dim: dim + shift for dim in range(stop, ndim)}
    why = {dim + start: why for dim, why in inner.why.items()}
    even, grouped = ([dim + start for dim in dims] for dims in (inner.even, inner.grouped))
    return moved(call, target, ndim + shift, why, even=even, grouped=grouped)


def _squeezed(call: Call) -> Labelling:
    ndim = call.first.ndim
    named = call.get("dim")
    asked = range(ndim) if named is None else dims_of(named, ndim)
    dropped = {dim for dim in asked if dim < ndim and call.first.shape[dim] == 1}
    stay = [dim for dim in range(ndim) if dim not in dropped]
    # Where shards are uneven, another rank may have one element of the dim and drop it.
    return moved(call, {dim: at for at, dim in enumerate(stay)}, len(stay), _SQUEEZED, even=asked)


def _unsqueezed(call: Call) -> Labelling:
    ndim = call.first.ndim
    new = dim_index(call.get("dim", 0), ndim + 1)
    return moved(call, {dim: dim + (dim >= new) for dim in range(ndim)}, ndim + 1)


def _expanded(call: Call) -> Labelling | None:
    sizes = listed(call, "size", "shape")
    return None if sizes is None else _stretched(call, sizes)


def _expanded_as(call: Call) -> Labelling | None:
    other = call.get("other")
    return _stretched(call, other.shape) if isinstance(other, Shape) else None


def _stretched(call: Call, sizes: Sequence[int]) -> Labelling | None:
    """Right-aligned; a dim of size 1 that is copied out has no shards, and a dim added in front has no label."""
    added = len(sizes) - call.first.ndim
    if added < 0:
        return None
    target = {dim: dim + added for dim, size in enumerate(call.first.shape) if sizes[dim + added] in (size, -1)}
    return moved(call, target, len(sizes), "a dim of size 1 that is broadcast cannot be a shard")


def _strided(call: Call) -> Labelling | None:
    sizes = call.get("size")
    return moved(call, {}, len(sizes), _STRIDED) if isinstance(sizes, (list, tuple)) else None


def _as_real(call: Call) -> Labelling:
    ndim = call.first.ndim
    return moved(call, {dim: dim for dim in range(ndim)}, ndim + 1)


def _as_complex(call: Call) -> Labelling:
    ndim = call.first.ndim
    return moved(call, {dim: dim for dim in range(ndim - 1)}, ndim - 1, _BITS)


LABELS: dict[str, Labeller] = {
    "view": _reshaped,
    "reshape": _reshaped,
    "view_as": _like_other,
    "reshape_as": _like_other,
    "flatten": _flattened,
    "ravel": _flattened,
    "unflatten": _unflattened,
    "squeeze": _squeezed,
    "unsqueeze": _unsqueezed,
    "expand": _expanded,
    "expand_as": _expanded_as,
    "as_strided": _strided,
    "view_as_real": _as_real,
    "view_as_complex": _as_complex,
    "view_copy": positional(_reshaped, "shape"),
    "_reshape_copy": positional(_reshaped, "shape"),
    "_reshape_alias_copy": positional(_reshaped, "shape stride"),
    "squeeze_copy": positional(_squeezed, "dim"),
    "unsqueeze_copy": positional(_unsqueezed, "dim"),
    "expand_copy": positional(_expanded, "size"),
    "as_strided_copy": positional(_strided, "size"),
    "view_as_real_copy": _as_real,
    "view_as_complex_copy": _as_complex,
}
