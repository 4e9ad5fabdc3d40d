"""Views that regroup, insert, drop, stretch or exchange dims, and elements that change places along one.

All only move elements and are linear. Sizes are one rank's; ``reshaped_dims.py`` lines dims up.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from ..propagation.dim_labels import Call, Labeller, Labelling, Shape, dim_index
from ..propagation.reshaped_dims import Reshaped, reshape
from ..schema import TORCHS, OpRule
from ..vocabulary.guards import no_dtype
from ..vocabulary.labellers import argument, dims_of, kept, listed, moved, shared_in, wrapped

MOVES = "moves elements without mixing them"

_SQUEEZED = "its size on this rank is 1, but not the whole dim's, which cannot be dropped"
_STRIDED = "it reads memory by strides, which say nothing about dims"
_BITS = "its two elements are one complex number"
_FLIPPED = "the order along the dim is reversed, so the shards would change ranks"
_ROLLED = "elements move from one shard into the next"
_ROTATED = "the order along the dim is reversed by the rotation, so the shards would change ranks"


def moves(labels: Labeller, names: str, *spellings: str, params: str = TORCHS) -> tuple[OpRule, ...]:
    """Operators that only move the elements of their first operand, and have their labels in common."""
    return tuple(OpRule(op, params, "input", law=MOVES, spellings=spellings, labels=labels) for op in names.split())


def _reshaped(call: Call) -> Labelling | None:
    """``view``, ``reshape``: sizes, or a dtype, which may only make the last dim finer or coarser."""
    if _is_dtype(argument(call, "dtype", "shape", "size")):
        return kept(call, grouped=[call.first.ndim - 1])
    return _regrouped(call, listed(call, "shape", "size"), shared_in(call, "shape", "size"))


def _is_dtype(value: object) -> bool:
    return type(value).__name__ == "dtype"


def _like_other(call: Call) -> Labelling | None:
    other = call.get("other")
    return _regrouped(call, list(other.shape)) if isinstance(other, Shape) else None


def _regrouped(call: Call, sizes: Sequence[int] | None, shared: Collection[int] = ()) -> Labelling | None:
    found = None if sizes is None else reshape(call.first.shape, sizes, shared)
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
    given = sizes if isinstance(sizes, Sequence) else [sizes]
    split = reshape(call.first.shape[dim : dim + 1], given, shared_in(call, "sizes"))
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


def _ordered(call: Call, order: list[int]) -> Labelling:
    """Dim ``order[i]`` becomes dim i."""
    return moved(call, {dim: at for at, dim in enumerate(order)}, len(order))


def _permuted(call: Call) -> Labelling | None:
    order = listed(call, "dims")
    return None if order is None else _ordered(call, dims_of(order, call.first.ndim))


def _swapped(call: Call, first: int, second: int) -> Labelling:
    ndim = call.first.ndim
    order = list(range(ndim))
    if ndim:
        first, second = dims_of((first, second), ndim)
        order[first], order[second] = second, first
    return _ordered(call, order)


def _transposed(call: Call) -> Labelling:
    return _swapped(call, argument(call, "dim0", "axis0", default=0), argument(call, "dim1", "axis1", default=0))


def _reversed_dims(call: Call) -> Labelling:
    return _ordered(call, list(reversed(range(call.first.ndim))))


def _moved_dims(call: Call) -> Labelling:
    """The dims named by ``source`` go where ``destination`` says, and the others fill up in order."""
    ndim = call.first.ndim
    goes = dict(
        zip(dims_of(call.get("destination", ()), ndim), dims_of(call.get("source", ()), ndim), strict=True),
    )
    rest = iter([dim for dim in range(ndim) if dim not in goes.values()])
    return _ordered(call, [goes[at] if at in goes else next(rest) for at in range(ndim)])


def _flipped(call: Call) -> Labelling | None:
    dims = listed(call, "dims")
    if dims is not None and "dims" not in call.arguments:
        dims = [0]  # flipud and reversed() name none
    return None if dims is None else kept(call, dims_of(dims, call.first.ndim), _FLIPPED)


def _flipped_sideways(call: Call) -> Labelling:
    return kept(call, [1], _FLIPPED)


def _rolled(call: Call) -> Labelling | None:
    """Without dims, the flattened tensor is rolled."""
    dims, shifts = call.get("dims"), call.get("shifts")
    if not isinstance(dims, (int, list, tuple)) or dims == () or dims == []:
        return kept(call, range(call.first.ndim), _ROLLED)
    turned = dims_of(dims, call.first.ndim)
    by = shifts if isinstance(shifts, (list, tuple)) else [shifts]
    still = {dim for dim, shift in zip(turned, by, strict=False) if shift == 0}
    return kept(call, [dim for dim in turned if dim not in still or turned.count(dim) > 1], _ROLLED)


def _rotated(call: Call) -> Labelling:
    """A quarter turn keeps the order along one of the two dims, which then lies where the other was."""
    ndim = call.first.ndim
    first, second = dims_of(call.get("dims", (0, 1)), ndim)
    turns = call.get("k", 1) % 4
    target = {dim: dim for dim in range(ndim) if turns == 0 or dim not in (first, second)}
    if turns % 2:
        target |= {first: second} if turns == 1 else {second: first}
    return moved(call, target, ndim, _ROTATED)


def _matrix_transposed(call: Call) -> Labelling:
    return _swapped(call, -2, -1)


_SIDE_BY_SIDE = "the two parts of a complex number, side by side"

RULES = (
    OpRule(
        "view",
        "input shape dtype",
        "input",
        law=MOVES,
        source="torch.Tensor.view",
        static=("shape", "dtype"),
        guard=no_dtype("shape", "dtype"),
        spellings=("_unsafe_view", "_reshape_alias"),
        labels=_reshaped,
    ),
    *moves(_reshaped, "reshape view_copy"),
    *moves(_like_other, "view_as reshape_as", params="input ~other"),
    *moves(_flattened, "flatten ravel"),
    *moves(_unflattened, "unflatten"),
    *moves(_squeezed, "squeeze squeeze_copy"),
    *moves(_unsqueezed, "unsqueeze unsqueeze_copy"),
    *moves(_expanded, "expand", "broadcast_to"),
    *moves(_expanded, "expand_copy"),
    *moves(_expanded_as, "expand_as", params="input ~other"),
    *moves(_strided, "as_strided as_strided_copy"),
    *moves(_transposed, "transpose transpose_copy"),
    *moves(_reversed_dims, "t", "T", "H", "numpy_T", "matrix_H"),
    *moves(_reversed_dims, "t_copy"),
    *moves(_matrix_transposed, "mT", "mH", "adjoint"),
    *moves(_permuted, "permute permute_copy"),
    *moves(_moved_dims, "movedim"),
    *moves(_flipped, "flip", "flipud", "__reversed__"),
    *moves(_flipped_sideways, "fliplr"),
    *moves(_rolled, "roll"),
    *moves(_rotated, "rot90"),
    *(
        OpRule(f"view_as_{parts}{copied}", linear="input", law=_SIDE_BY_SIDE, labels=labels)
        for parts, labels in (("real", _as_real), ("complex", _as_complex))
        for copied in ("", "_copy")
    ),
)
