"""Pieces of a tensor, by position: a sharded dim can be cut only where the cut takes all of it.

A rank knows positions within its shard only, so positions along a sharded dim mean something else on every rank.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...propagation.dim_labels import Call, Labeller, Labelling, Shape
from ..moves import argument, kept, moved, positional, wrapped

_CUT = "positions are counted from the start of each shard, so a cut takes a piece of every shard"
_PICKED = "the element picked would be one of every shard"
_UNBOUND = "the dim becomes separate tensors, of which each rank has its shard's only"
_WINDOWS = "windows reach over from one shard into the next"


def _narrowed(call: Call) -> Labelling:
    """``narrow(dim, start, length)``, and aten's slice, which has the end third and the step fourth."""
    dim = wrapped(call.get("dim", 0), call.first.ndim)
    stop = argument(call, "length", "end")
    step = argument(call, "step", "args[4]", default=1)
    return _ranged(call, dim, call.get("start"), stop, step)


def _ranged(call: Call, dim: int, start: object, stop: object, step: int) -> Labelling:
    size = call.first.shape[dim]
    from_start = not isinstance(start, Shape) and start in (None, 0, -size)
    to_end = stop is None or (isinstance(stop, int) and stop >= size)
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
    return _parts(call, [0] * call.get("chunks", 0), call.get("dim", 0))


def _divided(call: Call) -> Labelling:
    return _sections(call, call.get("dim", 0))


def _sections(call: Call, dim: int) -> Labelling:
    """``tensor_split``: how many parts, or the positions between them."""
    cuts = argument(call, "indices_or_sections", "sections", "indices")
    if isinstance(cuts, int):
        return _parts(call, [0] * cuts, dim)
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


LABELS: dict[str, Labeller] = {
    "narrow": _narrowed,
    "slice": _narrowed,
    "select": _selected,
    "unbind": _unbound,
    "split": _split,
    "chunk": _chunked,
    "tensor_split": _divided,
    "hsplit": _split_across,
    "vsplit": _split_down,
    "dsplit": _split_deep,
    "unfold": _unfolded,
    "narrow_copy": positional(_narrowed, "dim start length"),
    "slice_copy": positional(_narrowed, "dim start end step"),
    "select_copy": positional(_selected, "dim index"),
    "split_copy": positional(_split, "split_size dim"),
    "split_with_sizes_copy": positional(_split, "split_sizes dim"),
    "unbind_copy": positional(_unbound, "dim"),
    "unfold_copy": positional(_unfolded, "dimension size step"),
}
