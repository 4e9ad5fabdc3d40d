"""Which process group talks along a mesh axis, and what mesh axis is a process group?

A ``Communicator`` is what a collective needs to know about its group, worked out once per group. Groups are held
weakly: destroying one must not be prevented by our cache.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable

import torch
from torch.distributed import ProcessGroup

from shardwise.diagnostics.errors import SpmdTypeError
from shardwise.mesh.axis import MeshAxis
from shardwise.mesh.current import CurrentMesh, current_entry
from shardwise.mesh.normalize import normalize_axis
from shardwise.mesh.program import mesh_at_hand
from shardwise.types.aliases import DeviceMeshAxis

from ..torch_compat import constant_when_compiled
from . import backend


class Communicator:
    """A process group with this process's place in it. ``group`` is None only for an axis of one rank."""

    __slots__ = ("_group", "name", "rank", "size")

    def __init__(self, group: object, size: int, rank: int) -> None:
        self._group: Callable[[], object] = weakref.ref(group) if isinstance(group, ProcessGroup) else lambda: group
        self.name: str = getattr(group, "group_name", "")
        self.size = size
        self.rank = rank

    @property
    def group(self) -> object:
        """The process group."""
        group = self._group()
        if group is None:
            raise SpmdTypeError(
                f"the process group of this collective is gone (it had {self.size} ranks)",
                code="SW211",
                help=("run backward before torch.distributed.destroy_process_group()",),
            )
        return group


_by_id: dict[int, Communicator] = backend.learnt
_ALONE = Communicator(None, 1, 0)


def communicator(axis: DeviceMeshAxis) -> Communicator:
    """The communicator for an axis given as a process group, a name or a ``MeshAxis``. SW211 if there is none.

    A stand-in set with ``set_dist`` may have groups of its own kind: anything but a name or an axis is one.
    """
    known = _by_id.get(id(axis))
    if known is not None:
        return known
    if isinstance(axis, ProcessGroup) or (backend.is_replaced() and not isinstance(axis, (str, MeshAxis))):
        return _remember(axis)
    group = _group_of(axis)
    if group is None:
        return _ALONE
    return _by_id.get(id(group)) or _remember(group)


@constant_when_compiled
def _remember(group: object) -> Communicator:
    rank, size = backend.current.get_rank(group), backend.current.get_world_size(group)
    if rank < 0:
        raise SpmdTypeError(
            f"this process is not a member of the process group {getattr(group, 'group_desc', '') or group!r}",
            code="SW211",
            help=("call the collective only on the ranks of its group",),
        )
    made = Communicator(group, size, rank)
    if not backend.is_replaced():
        # A stand-in may answer differently on each thread, so what it says is not kept.
        _by_id[id(group)] = made
        weakref.finalize(group, _by_id.pop, id(group), None)
    return made


def _group_of(axis: DeviceMeshAxis) -> object:
    """The group that the current mesh has for ``axis``; None if the axis has a single rank and needs no group."""
    entry = current_entry() if torch.compiler.is_compiling() else mesh_at_hand()
    if entry is not None and isinstance(axis, str):
        group = entry.named_groups.get(axis)
        if group is not None:
            return group
    mesh_axis = normalize_axis(axis)
    if entry is None:
        group = None
    elif torch.compiler.is_compiling():
        # torch.compile reads no mapping with keys other than strings; names lead to the same groups, and are guarded.
        group = next((entry.named_groups.get(name) for name, own in entry.all_names.items() if own is mesh_axis), None)
    else:
        group = entry.groups.get(mesh_axis)
    if group is None and mesh_axis.size() > 1:
        _refuse(axis, entry)
    return group


def _refuse(axis: DeviceMeshAxis, entry: CurrentMesh | None) -> None:
    shown = repr(axis)
    if entry is None:
        message = f"axis {shown} has no process group: there is no current mesh"
    elif not entry.groups:
        message = f"axis {shown} has no process group: the current mesh was made without process groups"
    else:
        known = ", ".join(sorted(map(str, entry.groups)))
        message = f"Axis {shown} is not in the current mesh. The mesh has process groups for {known}"
    raise SpmdTypeError(
        message,
        code="SW211",
        help=("wrap the call in `with set_current_mesh(device_mesh):`", "or pass the process group itself as the axis"),
    )
