"""The names that axes have on this thread: one thread-local slot, which the mesh that is current fills.

Names of a mesh hide those of the meshes around it. What a name means is asked here by everything that takes names.
"""

from __future__ import annotations

import difflib
import threading
from collections.abc import Iterable, Mapping

from shardwise.diagnostics.errors import SpmdTypeError
from shardwise.diagnostics.respelling import Instead

from .aliases import Axis

Scopes = tuple[Mapping[str, Axis], ...]
"""The names of the current meshes, the innermost mesh first; no mesh is current if there are none."""


class _Local(threading.local):
    scopes: Scopes = ()


_FEW = 4
"""Axes of a mesh, up to which each is offered in the place of a name that is like none."""
_local = _Local()
_of_any_mesh: set[str] = set()


def note_names(names: Iterable[str]) -> None:
    """Some mesh has axes of these names, whether or not it will be current."""
    _of_any_mesh.update(names)


def set_name_scopes(scopes: Scopes) -> None:
    """The names from now on; ``mesh.entry`` alone calls this, when another mesh becomes current."""
    _local.scopes = scopes


def current_names() -> Mapping[str, Axis]:
    """The axes of the current mesh by their names, those of one rank included; empty without a mesh."""
    return _local.scopes[0] if _local.scopes else {}


def axis_named(name: str, otherwise: Scopes = ()) -> Axis:
    """The axis that ``name`` stands for; without a current mesh, among the names ``otherwise``.

    Errors: SW904 if there are none, SW902 for an unknown name.
    """
    scopes = _local.scopes or otherwise
    if not scopes:
        raise SpmdTypeError(
            f"the axis name {name!r} means nothing without a current mesh",
            code="SW904",
            help=("with set_current_mesh(device_mesh): ...", "or make one device mesh with mesh_dim_names"),
        )
    axis = scopes[0].get(name)
    if axis is None:
        raise _unknown_name(name, scopes)
    return axis


def _unknown_name(name: str, scopes: Scopes) -> SpmdTypeError:
    known = sorted(scopes[0])
    listed = f"its axes are {', '.join(map(repr, known))}" if known else "its axes have no names"
    hidden = any(name in outer for outer in scopes[1:])
    note = f"; note: an outer mesh has {name!r}, but the current mesh hides it" if hidden else ""
    message = f"the current mesh has no axis named {name!r}; {listed}{note}"
    if name in _of_any_mesh:  # it is spelled right
        help = (f"with set_current_mesh(...): around this line, with the mesh that has {name!r}",)
        return SpmdTypeError(message, code="SW902", help=help, said=repr(name))
    close = difflib.get_close_matches(name, known, 1)
    meant = [Instead(f"did you mean {one!r}", repr(name), f'"{one}"') for one in close if one.isidentifier()]
    if not meant and len(known) <= _FEW:
        meant = [Instead(f"{one!r} in its place, if that is meant", repr(name), f'"{one}"') for one in known]
    return SpmdTypeError(message, code="SW902", meant=tuple(meant), said=repr(name))
