"""Which mesh does the code at hand compute on? The current mesh, set with a ``with`` statement, one stack per thread.

An inner mesh hides the outer one completely: its axes, names, groups and local axes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from shardwise.diagnostics.errors import SpmdArgumentError, SpmdValueError, shown
from shardwise.types.aliases import DeviceMeshAxis, MeshArgument

from .axis import MeshAxis
from .entry import CurrentMesh, current_entry, set_current_entry
from .given import mesh_of, outermost_first
from .made_meshes import listener
from .normalize import format_axis, normalize_axis

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
    """The axes of the current mesh, those of one rank left out; None without a current mesh.

    Example:
        >>> sorted(current_mesh(), key=str)
        [dp, tp]
    """
    entry = current_entry()
    return None if entry is None else entry.axes


def current_mesh_names() -> dict[str, MeshAxis] | None:
    """The named axes of the current mesh, those of one rank left out; None without a current mesh.

    Example:
        >>> current_mesh_names()["tp"].size()
        4
    """
    entry = current_entry()
    return None if entry is None else dict(entry.names)


def current_mesh_all_names() -> dict[str, MeshAxis] | None:
    """The named axes of the current mesh, those of one rank too; None without a current mesh.

    Example:
        >>> with set_current_mesh({"pp": MeshAxis.of(1, 8), "tp": MeshAxis.of(4, 1)}):
        ...     print(sorted(current_mesh_all_names()))
        ['pp', 'tp']
    """
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

    Example:
        >>> with set_current_mesh({"cp": MeshAxis.of(2, 4), "ep": MeshAxis.of(4, 1)}):
        ...     print(typeof(assert_type(torch.ones(4), {"cp": R, "ep": S(0)})))
        f32[4@ep] {cp: R}
    """
    before = current_entry()
    entry = mesh_of(axes)
    if (told := listener()) is not None:
        told(entry)
    set_current_entry(entry)
    try:
        if local_axes:  # looked up, and printed in errors, by the new mesh's names
            set_current_entry(replace(entry, local_axes=_local_axes(entry, local_axes)))
        yield
    finally:
        set_current_entry(before)


def _local_axes(entry: CurrentMesh, given: Sequence[DeviceMeshAxis]) -> frozenset[MeshAxis]:
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise SpmdArgumentError(
            f"local_axes is a tuple of axes, got {shown(given)}", help=(f"local_axes=({shown(given)},)",)
        )
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
            f"local_axes must come before all global axes, outermost first: local {_shown(outermost_first(local))}, "
            f"global {_shown(rest)}",
            code="SW903",
        )
    return local


def _shown(axes: Iterable[MeshAxis]) -> str:
    return "[" + ", ".join(map(repr, axes)) + "]"
