"""Weak references to tensors, as this package keeps them.

torch refuses to swap the contents of a tensor that has any weak reference, and ``module.to`` swaps those of DTensors. A
program that is checked must not fail by ours: they mean the tensor of the program, whatever it holds.
"""

from __future__ import annotations

import weakref

import torch
from torch.utils.weak import WeakIdKeyDictionary, WeakIdRef


class OwnReference(weakref.ref[torch.Tensor]):
    """A weak reference that is no obstacle."""

    __slots__ = ()


class _OwnKey(WeakIdRef):
    __slots__ = ()


def by_tensor() -> WeakIdKeyDictionary:
    """A dictionary whose keys are tensors, which it does not keep alive."""
    return WeakIdKeyDictionary(ref_type=_OwnKey)


def foreign_references(x: object) -> list[object]:
    """The weak references to ``x`` that are not ours."""
    return [one for one in weakref.getweakrefs(x) if not isinstance(one, (OwnReference, _OwnKey))]
