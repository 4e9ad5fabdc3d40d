"""The number of this rank: what ``get_rank`` and the places in meshes and groups give differs along the axes meant.

What it is on every other rank is known too, so that a slice by it can be told to be the rank's own part. Torch's own
code, which asks all the time, gets plain numbers.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh

from shardwise.diagnostics.source import is_internal
from shardwise.interop.torch_compat import register_container
from shardwise.mesh.axis import MeshAxis
from shardwise.types.placement import V
from shardwise.types.tensor_type import TensorType

from ...parts.own_parts import RankPieces
from ...state.numbers import ByRank, typed, untyped_numbers
from ..patches import Patches, Plugin, Wrappers, checking_session

LIMIT = 4096
"""In larger worlds a number is not worked out for every rank."""


def _install(patches: Patches) -> None:
    if not dist.is_available():
        return
    register_container(RankPieces, tuple)
    patches.replace_attribute(DeviceMesh, "get_rank", _mesh_rank)
    patches.replace_attribute(DeviceMesh, "get_local_rank", _local_rank)
    patches.replace_attribute(DeviceMesh, "get_coordinate", _coordinate)
    patches.replace_attribute(dist.ProcessGroup, "rank", _own_rank)


def _wrappers() -> Wrappers:
    if not dist.is_available():
        return {}
    return {
        dist.get_rank: _rank(dist.get_rank),
        dist.get_group_rank: _group_rank(dist.get_group_rank),
        dist.get_node_local_rank: _node_rank(dist.get_node_local_rank),
    }


@functools.cache
def _rank(plain: Callable[..., int]) -> Callable[..., object]:
    @functools.wraps(plain)
    def get_rank(group: dist.ProcessGroup | None = None) -> object:
        return _told(plain(group), lambda: group if group is not None else dist.group.WORLD)

    return get_rank


@functools.cache
def _group_rank(plain: Callable[..., int]) -> Callable[..., object]:
    @functools.wraps(plain)
    def get_group_rank(group: dist.ProcessGroup, global_rank: int) -> object:
        result = plain(group, global_rank)
        own = not untyped_numbers.depth and global_rank == dist.get_rank()
        return _told(result, lambda: group) if own else result

    return get_group_rank


@functools.cache
def _node_rank(plain: Callable[..., int]) -> Callable[..., object]:
    @functools.wraps(plain)
    def get_node_local_rank(*args: object, **kwargs: object) -> object:
        return _told(plain(*args, **kwargs), lambda: dist.group.WORLD, exactly=False)

    return get_node_local_rank


def _mesh_rank(plain: Callable[..., int]) -> Callable[..., object]:
    @functools.wraps(plain)
    def get_rank(self: DeviceMesh) -> object:
        return _told(plain(self), lambda: dist.group.WORLD)

    return get_rank


def _local_rank(plain: Callable[..., int]) -> Callable[..., object]:
    @functools.wraps(plain)
    def get_local_rank(self: DeviceMesh, mesh_dim: int | str | None = None) -> object:
        return _told(plain(self, mesh_dim), lambda: self.get_group(mesh_dim))

    return get_local_rank


def _coordinate(plain: Callable[..., object]) -> Callable[..., object]:
    @functools.wraps(plain)
    def get_coordinate(self: DeviceMesh) -> object:
        found = plain(self)
        if not isinstance(found, (list, tuple)):
            return found
        return type(found)(_told(at, functools.partial(self.get_group, dim)) for dim, at in enumerate(found))

    return get_coordinate


def _own_rank(plain: Callable[..., int]) -> Callable[..., object]:
    @functools.wraps(plain)
    def rank(self: dist.ProcessGroup) -> object:
        return _told(plain(self), lambda: self)

    return rank


def _told(number: int, group: Callable[[], Any], *, exactly: bool = True) -> object:
    """``number`` as the place of this rank in the group; not ``exactly``: it differs, and nobody knows how."""
    if untyped_numbers.depth or number.__class__ is not int or checking_session() is None or _is_asked_by_the_library():
        return number
    with untyped_numbers:
        try:
            axis = MeshAxis.of(group())
            if axis.size() == 1:
                return number
            return typed(number, _varying(axis), _places(axis, number) if exactly else None)
        except (RuntimeError, ValueError, LookupError):  # no group yet, or one that this rank is not in
            return number


def _is_asked_by_the_library() -> bool:
    frame = sys._getframe(2)
    while frame.f_code.co_filename == __file__ and frame.f_back is not None:
        frame = frame.f_back
    return is_internal(frame.f_code)


@functools.cache
def _varying(axis: MeshAxis) -> TensorType:
    return TensorType.of({axis: V}, scale={axis: None})


def _places(axis: MeshAxis, own: int) -> ByRank | None:
    """The place on the axis of every rank of the world; None if this rank's is another one."""
    count = dist.get_world_size()
    if count > LIMIT:
        return None
    places = _all_places(axis, count)
    return places if places[dist.get_rank()] == own else None


@functools.cache
def _all_places(axis: MeshAxis, count: int) -> ByRank:
    return tuple(map(axis.layout.place, range(count)))


PLUGIN = Plugin("numbers of this rank", _install, everywhere=_wrappers)
