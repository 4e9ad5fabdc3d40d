"""Names of mesh axes: the registry, the names that the current mesh gives, and how an axis is printed.

An axis may have several names, and a name may belong to several axes (two meshes with a ``tp`` of different size);
then every one of them is shown with its layout, ``tp[4:1]``. The current mesh's names come first in print, because
they are what the program at hand says.
"""

from __future__ import annotations

import os
from typing import Protocol, runtime_checkable

from shardwise.types.axis_names import current_names

from .layout import Layout


@runtime_checkable
class NamedAxis(Protocol):
    """An axis, as far as its names go; ``axis.MeshAxis`` is one."""

    @property
    def layout(self) -> Layout: ...

    @property
    def sort_key(self) -> tuple[tuple[int, ...], tuple[int, ...]]: ...

    def size(self) -> int: ...

    def __hash__(self) -> int: ...


DEFAULT_GROUP = "default_pg"

_names_of: dict[NamedAxis, set[str]] = {}
_axes_of: dict[str, set[NamedAxis]] = {}


def _debug_from_environment() -> bool:
    return "1" in (os.environ.get("SHARDWISE_MESH_AXIS_DEBUG"), os.environ.get("MESH_AXIS_DEBUG"))


_debug = _debug_from_environment()


def register_name(axis: NamedAxis, name: str) -> None:
    """Add ``name`` to the names of ``axis``."""
    _names_of.setdefault(axis, set()).add(name)
    _axes_of.setdefault(name, set()).add(axis)


def clear_names() -> None:
    _names_of.clear()
    _axes_of.clear()


def names_of(axis: NamedAxis) -> frozenset[str]:
    """The registered names, with the layout added where a name alone is ambiguous."""
    return frozenset(_distinct(name, axis) for name in tuple(_names_of.get(axis, ())))


def display(axis: NamedAxis) -> str:
    """The axis in print."""
    if _debug:
        return _debug_display(axis)
    name = _short_name(axis)
    if axis.size() == 1:
        return f"{name or 'MeshAxis'}(trivial)"
    return name or _flattened(axis) or f"MeshAxis({axis.layout})"


def _debug_display(axis: NamedAxis) -> str:
    names = sorted(names_of(axis))
    if names:
        shown = "/".join(names)
    elif axis.size() == 1:
        shown = "MeshAxis(trivial)"
    else:
        shown = _flattened(axis) or "MeshAxis"
    return f"{shown}{{{axis.layout}}}"


def _distinct(name: str, axis: NamedAxis) -> str:
    # There is one default group at a time, whatever worlds this process has had before.
    # The trivial axis carries whatever names single-rank groups have; it never makes a name ambiguous.
    others = sum(1 for other in tuple(_axes_of.get(name, ())) if other.size() > 1)
    return f"{name}[{axis.layout}]" if others > 1 and axis.size() > 1 and name != DEFAULT_GROUP else name


def _short_name(axis: NamedAxis) -> str | None:
    here = [name for name, named in current_names().items() if named is axis and axis.size() > 1]
    if here:
        return min(here)
    names = _names_of.get(axis)
    if not names:
        return None
    return _distinct(min(names, key=lambda name: (name == DEFAULT_GROUP, name)), axis)


def _flattened(axis: NamedAxis) -> str | None:
    """``{outer,inner}`` if named axes multiply to this one."""
    here = (named for named in current_names().values() if isinstance(named, NamedAxis))
    named = {other for other in (*tuple(_names_of), *here) if other.size() > 1} - {axis}
    factors = _factors(axis.layout, _by_inner_stride(named), {})
    if factors is None:
        return None
    factors = sorted(factors, key=lambda factor: factor.sort_key)
    return "{" + ",".join(str(_short_name(factor)) for factor in factors) + "}"


def _by_inner_stride(axes: set[NamedAxis]) -> dict[int, list[NamedAxis]]:
    table: dict[int, list[NamedAxis]] = {}
    for axis in sorted(axes, key=lambda axis: (-axis.size(), axis.sort_key)):
        table.setdefault(axis.layout.strides[-1], []).append(axis)
    return table


def _factors(
    layout: Layout, named: dict[int, list[NamedAxis]], known: dict[Layout, list[NamedAxis] | None]
) -> list[NamedAxis] | None:
    """Named axes that merge to ``layout``: from the inside outwards, the largest fitting axis first.

    What remains after taking a factor out is a layout again, so remembering the remainders bounds the work.
    """
    if not layout.sizes:
        return []
    if layout not in known:
        known[layout] = None
        for axis in named.get(layout.strides[-1], ()):
            rest = layout.divide(axis.layout)
            more = None if rest is None else _factors(rest, named, known)
            if more is not None:
                known[layout] = [axis, *more]
                break
    return known[layout]


class set_printoptions:
    """Print axes with all their names and their layout. Works as a statement and as a context manager.

    Example:
        >>> with set_printoptions(debug=True):
        ...     print(MeshAxis.of(4, 1))
        tp{4:1}
    """

    def __init__(self, *, debug: bool) -> None:
        global _debug
        self._before = _debug
        _debug = debug

    def __enter__(self) -> None:
        return None

    def __exit__(self, *exc: object) -> None:
        global _debug
        _debug = self._before


def reset_printoptions() -> None:
    """Back to what the environment says."""
    set_printoptions(debug=_debug_from_environment())
