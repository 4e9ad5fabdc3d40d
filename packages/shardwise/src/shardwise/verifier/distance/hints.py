"""What does a clean factor between two runs suggest? Which sum is missing, or done twice, and over which axis."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Mapping

from shardwise.mesh.axis import MeshAxis

_CLOSE = 1e-2
_CLOSE_ALONE = 1e-4
"""A loss that differs by any mistake may be near half of another one."""


def hint_for(factor: float | None, count: int, axes: Mapping[MeshAxis, str]) -> str:
    """A question to start from; ``axes`` are the mesh's axes with their names. Empty if the factor says nothing.

    ``count``  elements that have the factor: that of a single one is clean only if it is the size of an axis.
    """
    if factor is None:
        return ""
    close = _CLOSE if count > 1 else _CLOSE_ALONE
    for names, size in _products(axes):
        over = " and ".join(names)
        if math.isclose(factor, size, rel_tol=close):
            return f"{size} times as much, the size of {over}: summed once too often over {over}?"
        if math.isclose(factor, 1 / size, rel_tol=close):
            return f"1/{size} of it, {size} being the size of {over}: divided once too often, or a sum over it missing?"
    if count == 1:
        return ""
    if math.isclose(factor, 0.0, abs_tol=1e-9):
        return "zero throughout: dropped, or overwritten?"
    if math.isclose(factor, -1.0, rel_tol=_CLOSE):
        return "the sign is wrong throughout"
    return f"{factor:.4g} times as much throughout"


def hint_for_module(name: str) -> str:
    """What to look at first where the output of a module is wrong; ``name`` is ``output of 1 (BatchNorm2d)``."""
    cls = name.rpartition("(")[2].removesuffix(")")
    if not re.fullmatch(r"(Lazy)?BatchNorm[123]d", cls):
        return ""
    return (
        f"in training {cls} takes the mean and variance of each rank's own rows: "
        "nn.SyncBatchNorm.convert_sync_batchnorm(model) takes those of all ranks, as one device does"
    )


def size_named(factor: float, axes: Mapping[MeshAxis, str]) -> str:
    """``the size of dp`` if the factor is that size, or one divided by it; empty if it is of no axis."""
    for names, size in _products(axes):
        if math.isclose(factor, size, rel_tol=_CLOSE) or math.isclose(factor, 1 / size, rel_tol=_CLOSE):
            return f"{size} is the size of {' and '.join(names)}"
    return ""


def size_nearest(factor: float, axes: Mapping[MeshAxis, str]) -> float:
    """The size of axes, or one divided by it, to which the factor is nearest; 1 where there are no axes."""
    sizes = [float(size) for _, size in _products(axes)]
    return min((*sizes, *(1 / size for size in sizes)), key=lambda size: abs(factor / size - 1), default=1.0)


def _products(axes: Mapping[MeshAxis, str]) -> list[tuple[tuple[str, ...], int]]:
    """Axes and products of axes with their sizes; axes of one size are named together as alternatives."""
    sized = sorted(((name, axis.size()) for axis, name in axes.items() if axis.size() > 1), key=lambda one: one[0])
    found: dict[int, tuple[str, ...]] = {}
    for size in sorted({size for _, size in sized}):
        found[size] = (" or ".join(name for name, own in sized if own == size),)
    for count in range(2, len(sized) + 1):
        for chosen in itertools.combinations(sized, count):
            found.setdefault(math.prod(size for _, size in chosen), tuple(name for name, _ in chosen))
    return [(names, size) for size, names in found.items()]
