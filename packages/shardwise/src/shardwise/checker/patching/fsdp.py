"""Parameters that FSDP splits: between forward and backward they are gathered, so replicate.

FSDP takes a parameter apart and makes new tensor objects of it, which carry no tag. The gathered one is replicate along
the axes that FSDP splits it over; along all others it is what its owner declared of the original. Of a DTensor it is
noted that it was gathered, for when a local tensor leaves it. FSDP is never imported from here, because it takes
seconds to load.
"""

from __future__ import annotations

import contextlib
import functools
import math
import sys
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import torch

from shardwise.interop.running.recording import placed_alike
from shardwise.interop.running.session import current, paused
from shardwise.interop.tensors.dtensors import is_dtensor
from shardwise.interop.tensors.tagging import Tag, set_tag, tag_of
from shardwise.interop.torch_compat import (
    GATHER_PARAMETER,
    MAKE_PARAMETER,
    USE_VIEWS,
    flat_parameters,
    gathered_parameter,
    sharded_parameter,
)
from shardwise.mesh.axis import MeshAxis
from shardwise.mesh.regions import cut_along
from shardwise.types.placement import R
from shardwise.types.tensor_type import UNKNOWN_TYPE, UNTYPED

from ..gradients.sharded_gradients import ALL_REDUCES, DECLARED, divided_by, may_hold_back, note, note_gathered
from ..observation.wrappers import averaged
from ..state.session import CheckSession
from .patches import Patches, Plugin, checking_session

if TYPE_CHECKING:
    from torch.distributed.tensor import DTensor


def _install_fully_shard(patches: Patches) -> None:
    patches.replace(MAKE_PARAMETER, _wrap_sharding)
    patches.replace(GATHER_PARAMETER, _wrap_gathering)
    module = sys.modules["torch.distributed.fsdp"].FSDPModule
    patches.replace_attribute(module, "set_gradient_divide_factor", _wrap_dividing)
    if hasattr(module, ALL_REDUCES):
        patches.replace_attribute(module, ALL_REDUCES, _wrap_all_reducing)
    for name in _OWN_REDUCTION:
        if hasattr(module, name):
            patches.replace_attribute(module, name, _wrap_own_reduction)


def _install_fsdp1(patches: Patches) -> None:
    patches.replace(USE_VIEWS, _wrap_views)


_OWN_REDUCTION = ("set_custom_reduce_scatter", "set_all_reduce_hook")
"""By these a program reduces gradients in a way of its own, which may divide by anything."""

FULLY_SHARD = Plugin("parameters of fully_shard", _install_fully_shard, tier=1, is_ready=MAKE_PARAMETER.is_loaded)
FSDP1 = Plugin("parameters of FSDP1", _install_fsdp1, is_ready=USE_VIEWS.is_loaded)


def _wrap_sharding(plain: Callable[..., object]) -> object:
    @functools.wraps(plain)
    def __init__(self: object, param: object, *args: object, **kwargs: object) -> None:
        note(self, tag_of(param))
        session = checking_session()
        with contextlib.nullcontext() if session is None else paused(session):
            plain(self, param, *args, **kwargs)
        kept, mesh = sharded_parameter(self)
        _note_average(mesh.get_all_groups())
        if isinstance(param, torch.Tensor) and not is_dtensor(param):
            placed_alike(param, _replicated_over(kept), "fully_shard")

    return __init__


def _replicated_over(kept: DTensor) -> list[MeshAxis]:
    """Along these axes every rank keeps the same piece of its own copy: nobody sends it that of another."""
    groups = kept.device_mesh.get_all_groups()
    named = zip(map(MeshAxis.of, groups), kept.placements, strict=True)
    return [axis for axis, placement in named if placement.is_replicate() and axis.size() > 1]


def _wrap_gathering(plain: Callable[..., object]) -> object:
    @functools.wraps(plain)
    def init_unsharded_param(self: Any) -> None:
        plain(self)
        gathered = gathered_parameter(self)
        if not isinstance(gathered, torch.Tensor):
            return
        groups = self.mesh_info.mesh.get_all_groups()
        if is_dtensor(gathered):
            note_gathered(gathered, [axis for axis in map(MeshAxis.of, groups) if axis.size() > 1])
        elif tag_of(gathered) is None:
            set_tag(gathered, _gathered(getattr(self, DECLARED, None), groups))
        _note_average(groups)

    return init_unsharded_param


def _wrap_dividing(plain: Callable[..., object]) -> object:
    @functools.wraps(plain)
    def set_gradient_divide_factor(self: Any, factor: float) -> None:
        plain(self, factor)
        divided_by(_own_parameters(self), float(factor))

    return set_gradient_divide_factor


def _wrap_all_reducing(plain: Callable[..., object]) -> object:
    @functools.wraps(plain)
    def set_requires_all_reduce(self: torch.nn.Module, *args: object, **kwargs: object) -> None:
        plain(self, *args, **kwargs)
        for module in self.modules():
            if hasattr(module, ALL_REDUCES):
                may_hold_back(module)

    return set_requires_all_reduce


def _wrap_own_reduction(plain: Callable[..., object]) -> object:
    @functools.wraps(plain)
    def set_own_reduction(self: torch.nn.Module, *args: object, **kwargs: object) -> None:
        plain(self, *args, **kwargs)
        divided_by(_own_parameters(self), math.nan)

    return set_own_reduction


def _own_parameters(module: torch.nn.Module) -> list[object]:
    """The parameters that ``module`` gathers itself, and no module inside it."""
    inner = [one for one in module.modules() if one is not module and hasattr(one, "unshard")]
    others = {id(parameter) for one in inner for parameter in one.parameters()}
    return [one for one in module.parameters() if id(one) not in others]


def _wrap_views(plain: Callable[..., object]) -> object:
    """Of ``FullyShardedDataParallel``, whose gathered parameters are views of a flat one."""

    @functools.wraps(plain)
    def _use_unsharded_views(self: Any, as_params: bool) -> None:
        plain(self, as_params)
        for original, view in flat_parameters(self):
            if not is_dtensor(view) and tag_of(view) is None:
                set_tag(view, _gathered(tag_of(original), [self.process_group]))
                _note_average([self.process_group])

    return _use_unsharded_views


def _note_average(groups: Iterable[object]) -> None:
    session = current()
    if isinstance(session, CheckSession):
        averaged(session, map(MeshAxis.of, groups))


def _gathered(declared: Tag | None, groups: Iterable[object]) -> Tag:
    """As declared, but replicate along the axes of ``groups``."""
    axes = [axis for axis in map(MeshAxis.of, groups) if axis.size() > 1]
    type = UNTYPED if declared is None else declared.current()
    for axis in axes:
        type = cut_along(type, axis)
    if any(not one.isorthogonal(axis) for axis in axes for one in type.axes if one not in axes):
        return Tag(UNKNOWN_TYPE)
    return Tag(type.with_placements(dict.fromkeys(axes, R)), None if declared is None else declared.origin)
