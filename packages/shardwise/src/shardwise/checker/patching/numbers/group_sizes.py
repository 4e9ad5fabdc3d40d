"""Numbers of ranks: what ``get_world_size`` and the sizes of meshes and groups give grows with the axes of the mesh."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh

from shardwise.interop.torch_compat import PLACE_RESULT
from shardwise.mesh.axis import MeshAxis
from shardwise.mesh.entry import current_entry
from shardwise.mesh.regions import axes_inside
from shardwise.types.tensor_type import Exponent

from ...state.number_types import number_type
from ...state.numbers import plain, typed, untyped_numbers
from ..patches import Patches, Plugin, Wrappers, checking_session


def _install(patches: Patches) -> None:
    if not dist.is_available():
        return
    patches.replace_attribute(DeviceMesh, "size", _mesh_size)
    patches.replace_attribute(dist.ProcessGroup, "size", _group_size)


def _wrappers() -> Wrappers:
    return {dist.get_world_size: _world_size(dist.get_world_size)} if dist.is_available() else {}


@functools.cache
def _world_size(plain: Callable[..., int]) -> Callable[..., object]:
    @functools.wraps(plain)
    def get_world_size(group: object = None) -> object:
        return _told(plain(group), lambda: [group if group is not None else dist.group.WORLD])

    return get_world_size


def _mesh_size(plain: Callable[..., int]) -> Callable[..., object]:
    @functools.wraps(plain)
    def size(self: Any, mesh_dim: object = None) -> object:
        result = plain(self, mesh_dim)
        return _told(result, lambda: self.get_all_groups() if mesh_dim is None else [self.get_group(mesh_dim)])

    return size


def _group_size(plain: Callable[..., int]) -> Callable[..., object]:
    @functools.wraps(plain)
    def size(self: object) -> object:
        return _told(plain(self), lambda: [self])

    return size


def _told(count: int, groups: Callable[[], list[object]]) -> object:
    """``count`` as the number of ranks of all these groups together, if axes of the mesh make them up.

    A mesh multiplies the numbers that it was made with, whose own types (``world // 2``) say less than that.
    """
    if untyped_numbers.depth or plain(count).__class__ is not int or checking_session() is None:
        return count
    mesh = current_entry()
    with untyped_numbers:
        try:
            scale: dict[Any, Exponent] = {}
            for group in groups():
                axis = MeshAxis.of(group)
                if axis.size() == 1:
                    continue
                parts = (axis,) if mesh is None or axis in mesh.axes else axes_inside(axis, mesh.axes)
                if not parts:
                    return count
                scale.update(dict.fromkeys(parts, 1))
            return typed(plain(count), number_type(scale if mesh is None else mesh.axes, scale))
        except (RuntimeError, ValueError, LookupError):  # no group yet, or one that this rank is not in
            return count


PLUGIN = Plugin("numbers of ranks", _install, everywhere=_wrappers)


def _without_types(plain: Callable[..., object]) -> Callable[..., object]:
    @functools.wraps(plain)
    def place(*args: object) -> object:
        with untyped_numbers:
            return plain(*args)

    return place


CHOICES = Plugin(
    "numbers that DTensor compares placements by",
    lambda patches: patches.replace(PLACE_RESULT, _without_types),
    is_ready=PLACE_RESULT.is_loaded,
)
"""DTensor computes the cost of every way to place the results of a new call: a third of a check, with types."""
