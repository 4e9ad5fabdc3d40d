"""The program's own device mesh, which is current without being told: the one that it has made, if it is one.

Outside of a check nobody watches how meshes are made, so one is looked for when a name is used and no mesh is current.
Parts of a mesh (``mesh["tp"]``) are no meshes of their own; of two meshes that cut the ranks otherwise, none is meant.
"""

from __future__ import annotations

import gc
import sys
import weakref
from collections.abc import Iterator
from types import FrameType
from typing import Any

from shardwise.types.aliases import MeshArgument

from .axis import MeshAxis
from .entry import CurrentMesh, current_entry, set_current_entry
from .given import mesh_of
from .made_meshes import listener


class _Found:
    """The mesh that was found last, in which world; in another one it is looked for again."""

    mesh: weakref.ref[Any] | None = None
    entry: CurrentMesh | None = None
    world: weakref.ref[Any] | None = None


def mesh_at_hand(*, search: bool = True) -> CurrentMesh | None:
    """The current mesh, else the program's one named device mesh; None if there is none, or more than one.

    ``search``  False: only if it has been found before.
    """
    entry = current_entry()
    if entry is not None:
        return entry
    world = _world()
    known = _Found.mesh is not None and _Found.mesh() is not None
    if not known or world is None or _Found.world is None or _Found.world() is not world:
        mesh = _one_mesh() if search and world is not None else None
        if mesh is None:
            return None
        _Found.mesh, _Found.entry, _Found.world = weakref.ref(mesh), mesh_of(mesh), weakref.ref(world)
    return _Found.entry


def _world() -> object:
    dist = sys.modules.get("torch.distributed")
    return None if dist is None else dist.group.WORLD


def group_expression(axis: MeshAxis) -> str | None:
    """What the program that is running calls a process group of ``axis``: a variable, or that of all ranks."""
    kind = getattr(sys.modules.get("torch.distributed"), "ProcessGroup", None)
    if kind is None:
        return None
    own = (name for name, value in _variables() if kind in type(value).__mro__ and MeshAxis.of(value) is axis)
    found = next(own, None)
    world = _world()
    return "dist.group.WORLD" if found is None and world is not None and MeshAxis.of(world) is axis else found


def mesh_expression(name: str) -> str | None:
    """What the program that is running calls a device mesh with an axis of this name; None if it has no variable."""
    kind = getattr(sys.modules.get("torch.distributed.device_mesh"), "DeviceMesh", None)
    meshes = (
        variable
        for variable, value in _variables()
        if kind in type(value).__mro__ and name in (value.mesh_dim_names or ())
    )
    return next(meshes, None)


def _variables() -> Iterator[tuple[str, Any]]:
    """The variables of the program's functions that are running, innermost first, and of their files."""
    frame: FrameType | None = sys._getframe(1)
    seen: set[int] = set()
    while frame is not None:
        if not str(frame.f_globals.get("__name__", "")).startswith(_FOREIGN):
            yield from list(frame.f_locals.items())
            if id(frame.f_globals) not in seen:
                seen.add(id(frame.f_globals))
                yield from list(frame.f_globals.items())
        frame = frame.f_back


_FOREIGN = ("torch.", "shardwise.", "click.", "runpy")


class MeshFollower:
    """Makes the meshes current that a program makes while a command runs it, as long as there is one.

    A second one that cuts the ranks otherwise (another for the experts, say) leaves none current. A mesh that the
    program itself has made current stays so.
    """

    def __init__(self) -> None:
        self._current: CurrentMesh | None = None
        self._made: list[CurrentMesh] = []

    def start(self, mesh: MeshArgument) -> None:
        """Make the mesh of the command line current until the program makes one."""
        self._made.clear()
        self._become(mesh_of(mesh))

    def made(self, device_mesh: Any) -> None:
        """The program has made a device mesh, and no part of one."""
        if device_mesh.mesh_dim_names is None:
            return
        if (told := listener()) is not None:
            told(mesh_of(device_mesh))
        if current_entry() is not self._current:
            return
        own = mesh_of(device_mesh)
        if any(other.all_names == own.all_names for other in self._made):
            return
        self._made.append(own)
        self._become(own if len(self._made) == 1 else None)

    def _become(self, entry: CurrentMesh | None) -> None:
        self._current = entry
        set_current_entry(entry)


def _one_mesh() -> Any:
    kind = getattr(sys.modules.get("torch.distributed.device_mesh"), "DeviceMesh", None)
    if kind is None:
        return None
    meshes = [one for one in gc.get_objects() if kind in type(one).__mro__ and one.mesh_dim_names and _is_alive(one)]
    dims = {one: set(one.mesh_dim_names) for one in meshes}
    whole = [one for one in meshes if not any(dims[one] < other for other in dims.values())]
    return whole[0] if len({(one.mesh_dim_names, tuple(one.shape)) for one in whole}) == 1 else None


def _is_alive(mesh: Any) -> bool:
    try:
        return all(mesh.get_group(name) is not None for name in mesh.mesh_dim_names)
    except (RuntimeError, ValueError, KeyError, AssertionError):
        return False  # its groups have been destroyed
