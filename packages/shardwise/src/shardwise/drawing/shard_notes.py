"""The words of a sharded tensor's drawing: what it shows, and what its signs mean, with the ranks that stand in it."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

from shardwise.mesh.names import NamedAxis
from shardwise.types.notation import format_placement

from .spread_tensor import SpreadTensor, combined, joined

MOST_FIBERS = 3
"""So many fibers stand in a note as examples."""
_COMBINED = {"avg": "mean", "max": "maximum", "min": "minimum"}
_SAYS = {
    "R": "R over {axis}: ranks hold the same and use it apart",
    "I": "I over {axis}: ranks hold the same and do the same with it",
    "V": "V over {axis}: every rank has a tensor of its own, and nothing is said of how they combine",
    "?": "? over {axis}: nothing is known; drawn as if ranks held the same",
}


def described(placed: SpreadTensor) -> str:
    """The picture in words."""
    parts = [f"A tensor of shape {list(placed.typed.shape)} on {math.prod(axis.size() for axis in placed.axes)} ranks."]
    for dim, axes in enumerate(placed.entries):
        if axes:
            shown = sorted(placed.pieces[dim].lengths(), reverse=True)
            parts.append(
                f"Dim {dim} is sharded over {', then '.join(map(repr, axes))}, in pieces of {_alternatives(shown)}."
            )
    for axis in placed.axes:
        if axis not in placed.sharded and axis in placed.type:
            parts.append(f"Over {axis!r} it is {format_placement(placed.type, axis)}.")
    parts.append(
        f"Rank {placed.rank({})} holds {placed.slices({})}." if placed.entries else "Every rank holds one number."
    )
    return " ".join(parts)


def _alternatives(numbers: Sequence[int]) -> str:
    told = list(map(str, numbers))
    return told[0] if len(told) == 1 else f"{', '.join(told[:-1])} or {told[-1]}"


def notes_of(placed: SpreadTensor) -> tuple[str, ...]:
    """What the signs in the picture mean."""
    notes = [] if placed.axes or not placed.typed.shape else ["no mesh: tiles show the index"]
    told = [
        axis for axis in placed.axes if axis not in placed.sharded and axis.size() > 1
    ]  # one rank differs from none
    notes += [_note(placed, axis) + _examples(placed, axis) for axis in told]
    for dim, (axes, pieces) in enumerate(zip(placed.entries, placed.pieces, strict=True)):
        lengths = pieces.lengths()
        if axes and len(lengths) > 1:
            empty = lengths[0]
            none = f"; {empty} of the {len(pieces)} pieces {'is' if empty == 1 else 'are'} empty" if empty else ""
            notes.append(f"dim {dim} does not divide: pieces of {_alternatives(sorted(lengths, reverse=True))}{none}")
    return tuple(notes)


def _note(placed: SpreadTensor, axis: NamedAxis) -> str:
    place = placed.type.get(axis)
    if place is None:
        return f"the type says nothing about {axis!r}; drawn as if its ranks held the same"
    name = format_placement(placed.type, axis)
    if axis in placed.partial:
        kind = placed.reduction(axis)
        factor = "" if name in (repr(place), "P(avg)") else ", times a power of its size"
        word = _COMBINED.get(kind, kind)
        return f"{name} over {axis!r}: the value is the {word} of the sheets, still to be taken{factor}"
    factor = "" if name == repr(place) else f", the value times a power of its size ({name})"
    return _SAYS[repr(place)].format(axis=repr(axis)) + factor


def _examples(placed: SpreadTensor, axis: NamedAxis) -> str:
    """The first fibers of an axis, with the sign that stands between their ranks in the picture."""
    if axis in placed.apart:
        return ""
    shown = list(itertools.islice(placed.fibers(axis), MOST_FIBERS + 1))
    is_partial = axis in placed.partial
    told = [combined(placed.reduction(axis), fiber) if is_partial else joined(" = ", fiber) for fiber in shown]
    return f": {', '.join(told[:MOST_FIBERS])}{', …' if len(told) > MOST_FIBERS else ''}" if told else ""
