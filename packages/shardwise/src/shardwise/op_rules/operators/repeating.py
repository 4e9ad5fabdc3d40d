"""Elements written more than once, borders added around them, and channels traded for pixels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ..propagation.dim_labels import Call, Labelling, Shape
from ..propagation.reshaped_dims import INTERLEAVES
from ..schema import Arguments, Decided, OpRule
from ..vocabulary.guards import given
from ..vocabulary.labellers import kept, listed, moved, wrapped
from .views import MOVES, moves

_COPIES = "each rank would lay the copies of its own shard side by side"
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
    """Copies stand next to their element, inside its shard; without a dim, the flattened tensor is meant.

    A count for each element goes with it, and makes shards of any lengths.
    """
    shape, counts = call.first.shape, call.get("repeats")
    if counts is None:
        return moved(call, {}, 1, _COUNTS)
    dim = call.get("dim", 0 if len(shape) == 1 else None)
    if dim is None:
        outermost = next((at for at, size in enumerate(shape) if size != 1), 0)
        return moved(call, dict.fromkeys(range(len(shape))[: outermost + 1], 0), 1, INTERLEAVES)
    made = kept(call)
    label = made.operands[0][wrapped(dim, len(shape))] if shape else None
    if label is None or not isinstance(counts, Shape) or not counts.ndim:
        return made
    single = frozenset({(1, label)} if counts.shape == (1,) else ())
    return replace(made, operands=(made.operands[0], (label,)), ragged=frozenset({label}), spread=single)


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
    """One element at a time is each element in turn."""
    return moved(call, {0: 0} if call.get("r", 2) == 1 else {}, 2, _PAIRS)


def _as_many(given: Arguments) -> Decided | None:
    if given.get("output_size") is not None:
        return None
    repeats = given.get("repeats", given.get("input"))
    text, instead = "as many entries as the repeats add up to", "pad the result to a fixed capacity"
    return Decided((repeats,), (given.get("dim") or 0,), text, instead)


def _bordered(op: str, source: str = "") -> OpRule:
    law = "copies the input; a border of zeros adds nothing, another constant is added once per rank"
    return OpRule(op, linear="input + value", law=law, source=source, labels=_padded)


RULES = (
    *moves(_repeated, "repeat tile"),
    OpRule(
        "repeat_interleave",
        "input repeats dim",
        "input",
        law=MOVES,
        static=("repeats",),
        guard=given("repeats", "a single operand is the counts, which say where elements go"),
        lengths=_as_many,
        labels=_repeated_each,
    ),
    _bordered("pad", "torch.nn.functional.pad"),
    _bordered("constant_pad_nd"),
    *moves(_pixels, "pixel_shuffle pixel_unshuffle"),
    *moves(_channels, "channel_shuffle", "native_channel_shuffle"),
    *moves(_combined, "combinations"),
)
