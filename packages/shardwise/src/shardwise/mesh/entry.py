"""The mesh that is current on this thread: one thread-local slot; an entry knows the one outside it.

Normalisation and whoever needs the mesh reads it, ``current.py`` writes it.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from shardwise.types.axis_names import set_name_scopes
from shardwise.types.tensor_type import TensorType

from .axis import MeshAxis


@dataclass(frozen=True, slots=True, eq=False)
class CurrentMesh:
    """A mesh that was made current.

    ``axes``          the axes of more than one rank; ``ordered_axes`` the same, outermost first.
    ``names``         name -> axis for these; ``all_names`` also for axes of one rank.
    ``groups``        axis -> process group, where the mesh was given with groups; ``named_groups`` by name.
    ``local_axes``    the axes that keep local semantics while the checker is in global mode.
    ``constant``      the type of a constant under this mesh; ``zero`` that of zeros.
    ``outer``         the mesh that this one hides.
    """

    axes: frozenset[MeshAxis]
    ordered_axes: tuple[MeshAxis, ...]
    names: Mapping[str, MeshAxis]
    all_names: Mapping[str, MeshAxis]
    groups: Mapping[MeshAxis, Any]
    named_groups: Mapping[str, Any]
    local_axes: frozenset[MeshAxis]
    constant: TensorType
    zero: TensorType
    outer: CurrentMesh | None = field(repr=False)


class _Local(threading.local):
    entry: CurrentMesh | None = None


_local = _Local()


def current_entry() -> CurrentMesh | None:
    """The innermost mesh of this thread, or None."""
    return _local.entry


def set_current_entry(entry: CurrentMesh | None) -> None:
    """Make ``entry`` the innermost mesh of this thread; ``current.py`` alone calls this."""
    _local.entry = entry
    scopes = []
    while entry is not None:
        scopes.append(entry.all_names)
        entry = entry.outer
    set_name_scopes(tuple(scopes))
