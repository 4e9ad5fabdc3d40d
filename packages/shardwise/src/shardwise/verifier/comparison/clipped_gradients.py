"""Gradients that are wrong by one factor because of another gradient: a norm of all was clipped.

    norm.weight misses its sum over tp; the norm of all gradients is wrong by it; so each of the other 40 is 1.03 times
    what it should be

Those that have no part in the factor are told before those that have.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from shardwise.mesh.axis import MeshAxis

from ..distance.hints import size_named
from ..distance.numbers import Numbers, ValueDisagreement

_SAME = 1e-3
"""How far factors may be apart, relative to each other, to be one."""


def clipped_among(
    gradients: Sequence[ValueDisagreement], axes: Mapping[MeshAxis, str] | None = None
) -> list[ValueDisagreement]:
    """Those of one step that share a factor, if they are more than those that do not, of which there are some.

    A factor that is the size of one of ``axes`` is a mistake of its own, and not what a norm has made of another one.
    """
    clipped = max(([one for one in gradients if _shares(one, other)] for other in gradients), key=len, default=[])
    if clipped and size_named(_factor(clipped[0]), axes or {}):
        return []
    return clipped if len(gradients) - len(clipped) in range(1, len(clipped)) else []


def with_clipped_last(numbers: Numbers, axes: Mapping[MeshAxis, str] | None = None) -> Numbers:
    """``numbers`` with the gradients of the first wrong step that share a factor behind those that do not."""
    gradients = [one for one in numbers.disagreements if one.key.kind == "gradient"]
    first = [one for one in gradients if one.key.nth == gradients[0].key.nth]
    clipped = clipped_among(first, axes)
    others = [one for one in first if one not in clipped]
    if not clipped:
        return numbers
    note = f"{len(clipped)} gradients are off by one factor, {_factor(clipped[0]):.4g}, as by a norm that was clipped"
    return replace(
        numbers, disagreements=_reordered(numbers.disagreements, others, clipped), notes=(*numbers.notes, note)
    )


def _reordered(
    all: Sequence[ValueDisagreement], others: Sequence[ValueDisagreement], clipped: Sequence[ValueDisagreement]
) -> tuple[ValueDisagreement, ...]:
    """The places of both are filled with the others first."""
    places = iter((*others, *clipped))
    moved = {id(one) for one in (*others, *clipped)}
    return tuple(next(places) if id(one) in moved else one for one in all)


def _shares(one: ValueDisagreement, other: ValueDisagreement) -> bool:
    factor, expected = _factor(one), _factor(other)
    return bool(expected) and abs(factor - expected) <= _SAME * abs(expected)


def _factor(wrong: ValueDisagreement) -> float:
    """0 where the elements are wrong in different ways."""
    found = wrong.difference
    return 0.0 if found is None or found.factor is None else found.factor
