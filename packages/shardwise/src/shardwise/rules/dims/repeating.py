"""Elements written more than once, borders added around them, and channels traded for pixels."""

from __future__ import annotations

from collections.abc import Sequence

from ..labels import Call, Labeller, Labelling, Shape
from ..moves import kept, listed, moved, wrapped
from ..reshaping import INTERLEAVES

_COPIES = "each rank would lay the copies of its own shard side by side"
_UNEVEN = "each element has its own count, so the result would be cut wherever the counts say"
_COUNTS = "the counts say at which positions the result stands, counted from the start of each shard"
_BORDER = "every shard would get the border, not only the first and the last one"
_SHUFFLED = "groups of channels are interleaved"
_PAIRS = "pairs reach over from one shard into the next"


def _repeated(call: Call) -> Labelling | None:
    """``repeat`` and ``tile``; a missing count is 1."""
    counts = listed(call, "repeats", "dims")
    if counts is None:
        return None
    ndim = call.first.ndim
    counts = [1] * (ndim - len(counts)) + counts
    added = len(counts) - ndim
    return moved(call, {dim: dim + added for dim in range(ndim) if counts[dim + added] == 1}, len(counts), _COPIES)


def _repeated_each(call: Call) -> Labelling:
    """Copies stand next to their element, inside its shard; without a dim, the flattened tensor is meant."""
    shape, counts, dim = call.first.shape, call.get("repeats"), call.get("dim")
    if counts is None:
        return moved(call, {}, 1, _COUNTS)
    if dim is None:
        outermost = next((at for at, size in enumerate(shape) if size != 1), 0)
        found = moved(call, dict.fromkeys(range(len(shape))[: outermost + 1], 0), 1, INTERLEAVES)
        return found if isinstance(counts, int) or len(shape) != 1 else moved(call, {}, 1, _UNEVEN)
    dim = wrapped(dim, len(shape))
    if isinstance(counts, Shape) and counts.shape not in ((), (1,)):
        return kept(call, [dim], _UNEVEN)
    return kept(call)


def _padded(call: Call) -> Labelling | None:
    """Two numbers per dim, the last dim first."""
    border = call.get("pad")
    if not isinstance(border, Sequence) or isinstance(border, Shape):
        return None
    ndim = call.first.ndim
    return kept(call, [ndim - 1 - at // 2 for at, width in enumerate(border) if width != 0], _BORDER)


def _pixels(call: Call) -> Labelling:
    """``(c r r) h w -> c (h r) (w r)`` and back: every dim stays the outer one of its group."""
    return kept(call, grouped=range(call.first.ndim))


def _channels(call: Call) -> Labelling:
    return kept(call, [1], _SHUFFLED)


def _combined(call: Call) -> Labelling:
    return moved(call, {}, 2, _PAIRS)


LABELS: dict[str, Labeller] = {
    "repeat": _repeated,
    "tile": _repeated,
    "repeat_interleave": _repeated_each,
    "pad": _padded,
    "constant_pad_nd": _padded,
    "pixel_shuffle": _pixels,
    "pixel_unshuffle": _pixels,
    "channel_shuffle": _channels,
    "combinations": _combined,
}
