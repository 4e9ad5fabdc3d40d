"""Dims that change places, and elements that change places along a dim."""

from __future__ import annotations

from ...propagation.dim_labels import Call, Labeller, Labelling
from ..moves import argument, dims_of, kept, listed, moved, positional

_FLIPPED = "the order along the dim is reversed, so the shards would change ranks"
_ROLLED = "elements move from one shard into the next"
_ROTATED = "the order along the dim is reversed by the rotation, so the shards would change ranks"


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


LABELS: dict[str, Labeller] = {
    "permute": _permuted,
    "transpose": _transposed,
    "t": _reversed_dims,
    "mT": _matrix_transposed,
    "movedim": _moved_dims,
    "flip": _flipped,
    "fliplr": _flipped_sideways,
    "roll": _rolled,
    "rot90": _rotated,
    "permute_copy": positional(_permuted, "dims"),
    "transpose_copy": positional(_transposed, "dim0 dim1"),
    "t_copy": _reversed_dims,
}
