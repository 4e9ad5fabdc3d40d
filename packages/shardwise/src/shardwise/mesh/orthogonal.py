"""Which axes overlap, and how do we say so? The one check that several axes are independent."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import combinations

from shardwise.diagnostics.errors import SpmdTypeError

from .axis import MeshAxis


def check_orthogonal(axes: Iterable[MeshAxis], where: str, names: Mapping[str, MeshAxis] | None = None) -> None:
    """Refuse axes that overlap. ``where`` says what they are the axes of, ``names`` what they are called there.

    Errors: SW901.
    Example:
        >>> check_orthogonal([MeshAxis.of(2, 4), MeshAxis.of(4, 1)], "the mesh")
    """
    axes = tuple(axes)
    if not axes or axes[0].isorthogonal(*axes[1:]):
        return
    for one, other in combinations(axes, 2):
        if one is other and one.size() > 1:
            raise SpmdTypeError(f"{one!r} is used twice in {where}: an axis is not orthogonal to itself", code="SW901")
    for one, other in combinations(axes, 2):
        if not one.isorthogonal(other):
            raise SpmdTypeError(
                f"{_shown(one, names)} and {_shown(other, names)} in {where} are not orthogonal: they overlap, and "
                f"axes must be independent radix dimensions of the ranks",
                code="SW901",
            )
    listed = ", ".join(_shown(axis, names) for axis in axes)
    raise SpmdTypeError(
        f"the axes {listed} in {where} are not orthogonal: every two of them are, but together they count some ranks "
        f"out of order",
        code="SW901",
    )


def _shown(axis: MeshAxis, names: Mapping[str, MeshAxis] | None) -> str:
    shown = min((name for name, named in (names or {}).items() if named is axis), default=repr(axis))
    layout = str(axis.layout)
    return shown if layout in shown else f"{shown} ({layout})"
