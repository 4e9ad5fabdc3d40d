"""Pieces of a tensor by position, and diagonals and triangles: a sharded dim can be cut only where the cut takes all.

A rank knows positions within its shard only, so positions along a sharded dim mean something else on every rank. A
diagonal or a triangle looks at two dims together; batch dims are kept.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..propagation.dim_labels import Call, Fate, Labelling, Shape
from ..schema import OpRule
from ..vocabulary.labellers import argument, dims_of, kept, moved, wrapped
from .views import MOVES, moves

_BEYOND = 2**31 - 1
"""What stands for the end of a dim of any length."""
_CUT = "positions are counted from the start of each shard, so a cut takes a piece of every shard"
_PICKED = "the element picked would be one of every shard"
_UNBOUND = "the dim becomes separate tensors, of which each rank has its shard's only"
_WINDOWS = "windows reach over from one shard into the next"
_DIAGONAL = "the diagonal runs through both dims at once, and each shard would start its own"
_TRIANGLE = "the triangle depends on the position along the dim, and every shard starts counting at 0"


def _narrowed(call: Call) -> Labelling:
    """``narrow(dim, start, length)``, and aten's slice, which has the end third and the step fourth."""
    dim = wrapped(call.get("dim", 0), call.first.ndim)
    stop = argument(call, "length", "end")
    step = argument(call, "step", "args[4]", default=1)
    return _ranged(call, dim, call.get("start"), stop, step)


def _ranged(call: Call, dim: int, start: object, stop: object, step: int) -> Labelling:
    size = call.first.shape[dim]
    from_start = not isinstance(start, Shape) and start in (None, 0, -size)
    # A number is a place in the whole dim, and not what happens to be the length of a shard, as with ``x[:4]``.
    to_end = stop is None or (isinstance(stop, int) and stop >= _BEYOND)
    return kept(call, () if from_start and to_end and step == 1 else [dim], _CUT)


def _selected(call: Call) -> Labelling:
    return _without(call, wrapped(call.get("dim", 0), call.first.ndim), _PICKED)


def _unbound(call: Call) -> Labelling:
    return _without(call, wrapped(call.get("dim", 0), call.first.ndim), _UNBOUND)


def _without(call: Call, lost: int, why: str) -> Labelling:
    """All dims but one."""
    ndim = call.first.ndim
    return moved(call, {dim: dim - (dim > lost) for dim in range(ndim) if dim != lost}, ndim - 1, why)


def _split(call: Call) -> Labelling:
    return _parts(call, argument(call, "split_size_or_sections", "split_size", "split_sizes"), call.get("dim", 0))


def _chunked(call: Call) -> Labelling:
    return _parts(call, [0] * _pieces(call, "chunks"), call.get("dim", 0))


def _pieces(call: Call, count: str) -> int:
    """1, or 2 for any larger number: one of ``4 // n`` pieces on four ranks is one of four on one device."""
    return 2 if call.is_shared(count) else min(call.get(count, 0), 2)


def _divided(call: Call) -> Labelling:
    return _sections(call, call.get("dim", 0))


def _sections(call: Call, dim: int) -> Labelling:
    """``tensor_split``: how many parts, or the positions between them."""
    names = ("indices_or_sections", "sections", "indices")
    cuts = argument(call, *names)
    if isinstance(cuts, int):
        return _parts(call, [0] * max(_pieces(call, name) for name in names if name in call.arguments), dim)
    return _parts(call, [0] * (len(cuts) + 1) if isinstance(cuts, Sequence) else None, dim)


def _parts(call: Call, parts: object, dim: int) -> Labelling:
    """All parts have the same labels; one part alone is the whole."""
    whole = isinstance(parts, Sequence) and len(parts) == 1
    return kept(call, () if whole else [wrapped(dim, call.first.ndim)], _CUT)


def _split_across(call: Call) -> Labelling:
    """``hsplit`` cuts the only dim of a vector."""
    return _sections(call, min(1, call.first.ndim - 1))


def _split_down(call: Call) -> Labelling:
    return _sections(call, 0)


def _split_deep(call: Call) -> Labelling:
    return _sections(call, 2)


def _unfolded(call: Call) -> Labelling | None:
    """``Tensor.unfold``; ``nn.functional.unfold`` has the name too and is told by its parameters."""
    size = call.get("size")
    if any(name in call.arguments for name in ("kernel_size", "dilation", "padding")) or not isinstance(size, int):
        return _unfolded_blocks(call)
    ndim = call.first.ndim
    dim = wrapped(call.get("dimension", 0), ndim)
    # Windows that neither overlap nor leave a rest are a split of the dim, whose outer part keeps the shards.
    splits = size == call.get("step") and call.first.shape[dim : dim + 1] and call.first.shape[dim] % size == 0
    target = {each: each for each in range(ndim) if each != dim or splits}
    return moved(call, target, ndim + 1, _WINDOWS, even=[dim])


def _unfolded_blocks(call: Call) -> Labelling | None:
    """``[n] c h w -> [n] (c kh kw) l``."""
    ndim = call.first.ndim
    if ndim not in (3, 4):
        return None
    return moved(call, {dim: dim for dim in range(ndim - 2)}, ndim - 1, _WINDOWS)


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


_SECTIONS = "input indices_or_sections"

RULES = (
    *moves(_narrowed, "narrow narrow_copy slice_copy"),
    OpRule("slice", "input dim start end step", "input", law=MOVES, view=True, labels=_narrowed),
    *moves(_selected, "select select_copy"),
    *moves(_split, "split", "split_with_sizes", "unsafe_split", "unsafe_split_with_sizes"),
    *moves(_split, "split_copy split_with_sizes_copy"),
    *moves(_chunked, "chunk", "unsafe_chunk"),
    *moves(_divided, "tensor_split", params=f"{_SECTIONS} dim"),
    *moves(_split_across, "hsplit", params=_SECTIONS),
    *moves(_split_down, "vsplit", params=_SECTIONS),
    *moves(_split_deep, "dsplit", params=_SECTIONS),
    *moves(_unbound, "unbind", "__iter__"),
    *moves(_unbound, "unbind_copy"),
    # ``nn.functional.unfold`` shares its name with the view of Tensor.
    *moves(_unfolded, "unfold", "im2col", params="input dimension size step"),
    *moves(_unfolded, "unfold_copy"),
    *moves(_diagonal, "diagonal diagonal_copy"),
    *moves(_matrix_diagonal, "linalg.diagonal", params="input offset dim1 dim2"),
    *moves(_triangle, "tril", "triu"),
    *moves(_diag, "diag"),
    *moves(_flat, "diagflat"),
    *moves(_embedded, "diag_embed"),
)
