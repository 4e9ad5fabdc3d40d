"""The mesh that is current on this thread: one thread-local slot; an entry knows the one outside it.

Normalisation and whoever needs the mesh reads it, ``current.py`` writes it.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from shardwise._pictured import Pictured
from shardwise.types.axis_names import set_name_scopes
from shardwise.types.tensor_type import TensorType

from .axis import MeshAxis


@dataclass(frozen=True, slots=True, eq=False)
class CurrentMesh(Pictured):
    """A mesh that was made current.

    ``axes``          the axes of more than one rank; ``ordered_axes`` the same, outermost first.
    ``names``         name -> axis for these; ``all_names`` also for axes of one rank.
    ``groups``        axis -> process group, where the mesh was given with groups; ``named_groups`` by name.
    ``local_axes``    the axes that keep local semantics while the checker is in global mode.
    ``constant``      the type of a constant under this mesh; ``zero`` that of zeros.
    ``outer``         the mesh that this one hides.
    ``device_mesh``   the DeviceMesh that it was given as, if it was.
    ``mapped_axes``   those of ``local_axes`` over which a dim is sharded that ``vmap`` or ``map`` takes apart.
    ``reach``         one object for all meshes with the same axes, local axes and mapped axes: what verdicts depend on.

    Example:
        >>> mesh_of({"tp": MeshAxis.of(4, 1)}).ordered_axes
        (tp,)
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
    mapped_axes: frozenset[MeshAxis] = frozenset()
    device_mesh: Any = field(default=None, repr=False)
    reach: object = field(init=False, repr=False)

    def __post_init__(self) -> None:
        reach = (self.axes, self.local_axes, self.mapped_axes)
        object.__setattr__(self, "reach", _reaches.setdefault(reach, _Reach()))

    def mapping(self, axes: Iterable[MeshAxis]) -> CurrentMesh:
        """This mesh while a dim that is sharded over ``axes`` is taken apart."""
        return replace(self, local_axes=self.local_axes | set(axes), mapped_axes=self.mapped_axes | set(axes))


class _Reach:
    """Compared and hashed by identity, which costs a key of the verdict cache less than three sets."""


_reaches: dict[tuple[frozenset[MeshAxis], ...], _Reach] = {}


class Here:
    """Where a thread keeps its current mesh. Who asks at every call holds it, because it takes long to find."""

    __slots__ = ("entry",)

    def __init__(self) -> None:
        self.entry: CurrentMesh | None = None


class _Local(threading.local):
    def __init__(self) -> None:
        self.here = Here()


_local = _Local()


def here() -> Here:
    """Where this thread keeps its current mesh."""
    return _local.here


def current_entry() -> CurrentMesh | None:
    """The innermost mesh of this thread, or None.

    Example:
        >>> current_entry().ordered_axes
        (dp, tp)
    """
    return _local.here.entry


def set_current_entry(entry: CurrentMesh | None) -> None:
    """Make ``entry`` the innermost mesh of this thread; ``current.py`` alone calls this."""
    _local.here.entry = entry
    scopes = []
    while entry is not None:
        scopes.append(entry.all_names)
        entry = entry.outer
    set_name_scopes(tuple(scopes))
