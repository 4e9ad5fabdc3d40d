"""Diagonals and triangles: two dims are looked at together, by position; batch dims are kept."""

from __future__ import annotations

from ...propagation.dim_labels import Call, Fate, Labeller, Labelling
from ..moves import dims_of, kept, moved, positional

_DIAGONAL = "the diagonal runs through both dims at once, and each shard would start its own"
_TRIANGLE = "the triangle depends on the position along the dim, and every shard starts counting at 0"


def _triangle(call: Call) -> Labelling:
    ndim = call.first.ndim
    return kept(call, (ndim - 2, ndim - 1), _TRIANGLE, fate=Fate.POSITION)


def _diagonal(call: Call) -> Labelling:
    return _taken(call, call.get("dim1", 0), call.get("dim2", 1))


def _matrix_diagonal(call: Call) -> Labelling:
    return _taken(call, call.get("dim1", -2), call.get("dim2", -1))


def _taken(call: Call, first: int, second: int) -> Labelling:
    """The two dims become the last one."""
    ndim = call.first.ndim
    looked = dims_of((first, second), ndim)
    batch = [dim for dim in range(ndim) if dim not in looked]
    return moved(call, {dim: at for at, dim in enumerate(batch)}, ndim - 1, _DIAGONAL)


def _embedded(call: Call) -> Labelling:
    """The last dim becomes two."""
    ndim = call.first.ndim
    made = dims_of((call.get("dim1", -2), call.get("dim2", -1)), ndim + 1)
    batch = [dim for dim in range(ndim + 1) if dim not in made]
    return moved(call, dict(enumerate(batch)), ndim + 1, _DIAGONAL)


def _diag(call: Call) -> Labelling:
    return moved(call, {}, 3 - call.first.ndim, _DIAGONAL)


def _flat(call: Call) -> Labelling:
    return moved(call, {}, 2, _DIAGONAL)


LABELS: dict[str, Labeller] = {
    "tril": _triangle,
    "diagonal": _diagonal,
    "linalg.diagonal": _matrix_diagonal,
    "diag": _diag,
    "diagflat": _flat,
    "diag_embed": _embedded,
    "diagonal_copy": positional(_diagonal, "offset dim1 dim2"),
}
