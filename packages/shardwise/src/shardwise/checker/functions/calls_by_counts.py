"""Calls of an autograd function that differ by whole numbers alone: of counts of rows for each rank a few tell of all,
and what each rank asks for by numbers of its own is not equal.

exchange(x, [3, 1, 2, 1], [1, 2, 0, 3])    every batch of tokens brings other numbers
exchange(x, [2, 2, 0, 1], [3, 0, 1, 1])    so calls are looked at until enough have been the same
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeGuard

import torch

from shardwise.interop.tensors.tagging import type_of
from shardwise.oracle.function_typings import FunctionTransition

from ..state.session import CheckSession

_ENOUGH = 4


def known_by_counts(session: CheckSession, key: tuple[object, ...]) -> FunctionTransition | None:
    """What calls like that of ``key`` are, whatever their numbers; None if too few are known, or they differ."""
    found = _seen(session, key)
    if len(found) < _ENOUGH or len({(one.axis, one.ways) for one in found}) > 1 or not found[0].ways:
        return None
    axis = found[0].axis
    return found[0] if axis is not None and _counted(key) == {axis.size()} else None


def note_by_counts(session: CheckSession, key: tuple[object, ...], found: FunctionTransition) -> None:
    """The call of ``key`` has been looked at."""
    if _counted(key):
        _seen(session, key).append(found)


def but_equal_by_chance(found: FunctionTransition, args: Sequence[object]) -> FunctionTransition:
    """``found`` without results that are equal on its ranks, where each rank asks by whole numbers of its own: it was
    looked at with the same ones on all.
    """
    asks = (type_of(x) for x in args if isinstance(x, torch.Tensor) and not x.is_floating_point())
    if not found.ways or not any(type.is_varying(found.axis) for type in asks):
        return found
    ways = frozenset(way for way in found.ways if not {"R", "I"} & {*way.results})
    return replace(found, ways=ways, unclear="" if ways else "each rank asks by whole numbers of its own")


def _seen(session: CheckSession, key: tuple[object, ...]) -> list[FunctionTransition]:
    alike = ("counts", *(len(one) if _is_counts(one) else one for one in key))
    seen: list[FunctionTransition] = session.probed.setdefault(alike, [])
    return seen


def _counted(key: tuple[object, ...]) -> set[int]:
    """For how many ranks the lists of numbers in ``key`` are."""
    return {len(one) - 1 for one in key if _is_counts(one)}


def _is_counts(one: object) -> TypeGuard[tuple[object, ...]]:
    """Is this the part of a key for a list of whole numbers, none of them negative?"""
    if not isinstance(one, tuple) or len(one) < 2 or one[0] not in (list, tuple):
        return False
    return all(isinstance(count, int) and not isinstance(count, bool) and count >= 0 for count in one[1:])
