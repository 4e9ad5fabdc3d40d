"""Which mesh does the code at hand compute on? The current mesh, set with a ``with`` statement, one stack per thread.

An inner mesh hides the outer one completely: its axes, names, groups and local axes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from shardwise.diagnostics.errors import SpmdArgumentError, SpmdTypeError, SpmdValueError, shown
from shardwise.types.aliases import DeviceMeshAxis, MeshArgument
from shardwise.types.tensor_type import constant_type

from .axis import MeshAxis
from .entry import CurrentMesh, current_entry, set_current_entry
from .normalize import format_axis, normalize_axis
from .orthogonal import check_orthogonal

__all__ = [
    "CurrentMesh",
    "current_entry",
    "current_mesh",
    "current_mesh_all_names",
    "current_mesh_names",
    "mesh_of",
    "set_current_mesh",
]


def current_mesh() -> frozenset[MeshAxis] | None:
    """The axes of the current mesh, those of one rank left out; None without a current mesh."""
    entry = current_entry()
    return None if entry is None else entry.axes


def current_mesh_names() -> dict[str, MeshAxis] | None:
    """The named axes of the current mesh, those of one rank left out; None without a current mesh."""
    entry = current_entry()
    return None if entry is None else dict(entry.names)


def current_mesh_all_names() -> dict[str, MeshAxis] | None:
    """The named axes of the current mesh, those of one rank too; None without a current mesh."""
    entry = current_entry()
    return None if entry is None else dict(entry.all_names)


@contextmanager
def set_current_mesh(axes: MeshArgument | None = None, *, local_axes: Sequence[DeviceMeshAxis] = ()) -> Iterator[None]:
    """Make a mesh current inside the ``with`` block, or inside a decorated function.

    ``axes`` is a DeviceMesh, a dict from names to axes or process groups, a set of axes, or a sequence of process
    groups; left out, it is the current mesh again, with other ``local_axes``. Process groups are remembered, so
    collectives find them by axis, and by name where there are names.
    ``local_axes`` are the outermost axes that keep local semantics while the checker is in global mode.
    Errors: SW903 for what is no mesh and for bad ``local_axes``, SW901 for overlapping axes, SW904 if ``axes`` is left
    out without a current mesh.
    """
    before = current_entry()
    entry = mesh_of(axes)
    set_current_entry(entry)
    try:
        if local_axes:  # looked up, and printed in errors, by the new mesh's names
            set_current_entry(replace(entry, local_axes=_local_axes(entry, local_axes)))
        yield
    finally:
        set_current_entry(before)


def mesh_of(axes: MeshArgument | None) -> CurrentMesh:
    """The entry that ``set_current_mesh(axes)`` would make current."""
    if axes is None:
        return _again()
    parts = _read(axes)
    kept = frozenset(axis for axis in parts.axes if axis.size() > 1)
    ordered = _ordered(kept)
    check_orthogonal(ordered, "the mesh", parts.names)
    return CurrentMesh(
        axes=kept,
        ordered_axes=ordered,
        names=MappingProxyType({name: axis for name, axis in parts.names.items() if axis.size() > 1}),
        all_names=MappingProxyType(parts.names),
        groups=MappingProxyType(parts.groups),
        named_groups=MappingProxyType(parts.named_groups),
        local_axes=frozenset(),
        constant=constant_type(ordered),
        zero=constant_type(ordered, zero=True),
        outer=current_entry(),
    )


def _again() -> CurrentMesh:
    entry = current_entry()
    if entry is None:
        raise SpmdTypeError(
            "set_current_mesh() without axes takes the current mesh again, and there is none",
            code="SW904",
            help=("set_current_mesh(device_mesh)",),
        )
    return replace(entry, local_axes=frozenset(), outer=entry)


@dataclass
class _Parts:
    axes: list[MeshAxis] = field(default_factory=list)
    names: dict[str, MeshAxis] = field(default_factory=dict)
    groups: dict[MeshAxis, Any] = field(default_factory=dict)
    named_groups: dict[str, Any] = field(default_factory=dict)

    def add(self, given: object, name: str | None = None) -> None:
        """Take in an axis or a process group."""
        axis = _axis_in_mesh(given)
        self.axes.append(axis)
        if name is not None:
            self.names[name] = axis
        if given is not axis:
            self.groups.setdefault(axis, given)
            if name is not None:
                self.named_groups[name] = given


def _read(axes: object) -> _Parts:
    parts = _Parts()
    if hasattr(axes, "mesh_dim_names") and hasattr(axes, "get_group"):
        if axes.mesh_dim_names is None:
            raise SpmdValueError(
                "the DeviceMesh has no dim names, so its axes cannot be named",
                code="SW903",
                help=(
                    'init_device_mesh(..., mesh_dim_names=("dp", "tp"))',
                    'set_current_mesh({"dp": MeshAxis.of(2, 4), "tp": MeshAxis.of(4, 1)})',
                ),
            )
        for name in axes.mesh_dim_names:
            parts.add(axes.get_group(name), name)
    elif isinstance(axes, Mapping):
        for name, given in axes.items():
            if not isinstance(name, str):
                raise _no_mesh(f"a dict with the key {shown(name)}, which is no name")
            parts.add(given, name)
    elif isinstance(axes, Iterable) and not isinstance(axes, (str, bytes)):
        for given in axes:
            parts.add(given)
        repeated = [axis for axis, count in Counter(parts.axes).items() if count > 1 and axis.size() > 1]
        if repeated:
            raise SpmdTypeError(
                f"{repeated[0]!r} is used twice in the mesh: an axis is not orthogonal to itself", code="SW901"
            )
    else:
        raise _no_mesh(f"{shown(axes)} of type {type(axes).__name__}")
    return parts


def _axis_in_mesh(given: object) -> MeshAxis:
    if isinstance(given, (str, int)):
        raise _no_mesh(f"{shown(given)} of type {type(given).__name__} as one of its axes")
    return MeshAxis.of(given)


def _no_mesh(got: str) -> SpmdArgumentError:
    return SpmdArgumentError(
        f"a mesh is a DeviceMesh, a dict from names to axes, a set of axes or a sequence of process groups, got {got}",
        code="SW903",
        help=("set_current_mesh(device_mesh)", 'set_current_mesh({"tp": MeshAxis.of(4, 1)})'),
    )


def _ordered(axes: Iterable[MeshAxis]) -> tuple[MeshAxis, ...]:
    return tuple(sorted(axes, key=lambda axis: axis.sort_key))


def _local_axes(entry: CurrentMesh, given: Sequence[DeviceMeshAxis]) -> frozenset[MeshAxis]:
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise SpmdArgumentError(f"local_axes is a tuple of axes, got {given!r}", help=(f"local_axes=({given!r},)",))
    given = tuple(given)
    unknown = [axis for axis in given if isinstance(axis, str) and axis not in entry.all_names]
    if unknown:
        raise SpmdValueError(
            f"local_axes names unknown axes {unknown}; the mesh has {sorted(entry.all_names)}", code="SW902"
        )
    resolved = [entry.all_names[axis] if isinstance(axis, str) else normalize_axis(axis) for axis in given]
    listed = "(" + ", ".join(map(format_axis, given)) + ")"
    twice = [axis for axis, count in Counter(resolved).items() if count > 1 and axis.size() > 1]
    if twice:
        raise SpmdValueError(f"local_axes={listed} has duplicates: {_shown(twice)}", code="SW903")
    resolved = [axis for axis in resolved if axis.size() > 1]
    outside = [axis for axis in resolved if axis not in entry.axes]
    if outside:
        raise SpmdValueError(
            f"local_axes has axes outside the mesh: {_shown(outside)}; the mesh has {_shown(entry.ordered_axes)}",
            code="SW903",
        )
    local = frozenset(resolved)
    prefix = entry.ordered_axes[: len(local)]
    if local != frozenset(prefix):
        rest = [axis for axis in entry.ordered_axes if axis not in local]
        raise SpmdValueError(
            f"local_axes must come before all global axes, outermost first: local {_shown(_ordered(local))}, "
            f"global {_shown(rest)}",
            code="SW903",
        )
    return local


def _shown(axes: Iterable[MeshAxis]) -> str:
    return "[" + ", ".join(map(repr, axes)) + "]"
