"""What types do the parameters that FSDP splits have? Between forward and backward they are gathered, so replicate.

FSDP takes a parameter apart and makes new tensor objects of it, which carry no tag. The gathered one is replicate along
the axes that FSDP splits it over; along all others it is what its owner declared of the original. A parameter that is a
DTensor stays its own business. FSDP is never imported from here, because it takes seconds to load.
"""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable, Iterable
from typing import Any

import torch

from shardwise.interop.dtensors import is_dtensor
from shardwise.interop.session import paused
from shardwise.interop.tagging import Tag, set_tag, tag_of
from shardwise.mesh.axis import MeshAxis
from shardwise.types.placement import R
from shardwise.types.tensor_type import UNTYPED

from ..gradients.sharded_gradients import DECLARED, note
from ..state.session import CheckSession

_FULLY_SHARD = "torch.distributed.fsdp._fully_shard._fsdp_param"
_FLAT = "torch.distributed.fsdp._flat_param"
Replace = Callable[[Any, str, Callable[[Any], Any]], None]


def watch(replace: Replace, find: Callable[[], CheckSession | None]) -> bool:
    """Wrap the methods that matter by ``replace(owner, name, wrap)``; False while FSDP is not loaded.

    ``find`` gives the session of this thread: what FSDP does to take a parameter apart is not the program's doing.
    """
    new = getattr(sys.modules.get(_FULLY_SHARD), "FSDPParam", None)
    old = getattr(sys.modules.get(_FLAT), "FlatParamHandle", None)
    if new is None or old is None:  # importing either imports both
        return False
    replace(new, "__init__", functools.partial(_wrap_sharding, find))
    replace(new, "init_unsharded_param", _wrap_gathering)
    replace(old, "_use_unsharded_views", _wrap_views)
    return True


def _wrap_sharding(find: Callable[[], CheckSession | None], plain: Any) -> Any:
    @functools.wraps(plain)
    def __init__(self: Any, param: Any, *args: Any, **kwargs: Any) -> None:
        note(self, tag_of(param))
        session = find()
        with contextlib.nullcontext() if session is None else paused(session):
            plain(self, param, *args, **kwargs)

    return __init__


def _wrap_gathering(plain: Any) -> Any:
    @functools.wraps(plain)
    def init_unsharded_param(self: Any) -> None:
        plain(self)
        gathered = self._unsharded_param
        if isinstance(gathered, torch.Tensor) and not is_dtensor(gathered) and tag_of(gathered) is None:
            set_tag(gathered, _gathered(getattr(self, DECLARED, None), self.mesh_info.mesh.get_all_groups()))

    return init_unsharded_param


def _wrap_views(plain: Any) -> Any:
    """Of ``FullyShardedDataParallel``, whose gathered parameters are views of a flat one."""

    @functools.wraps(plain)
    def _use_unsharded_views(self: Any, as_params: bool) -> None:
        plain(self, as_params)
        originals = self.flat_param._params or [None] * len(self.flat_param._param_infos)
        for original, (name, module, *_) in zip(originals, self.flat_param._param_infos, strict=True):
            view = getattr(module, name)
            if not is_dtensor(view) and tag_of(view) is None:
                set_tag(view, _gathered(tag_of(original), [self.process_group]))

    return _use_unsharded_views


def _gathered(declared: Tag | None, groups: Iterable[Any]) -> Tag:
    """As declared, but replicate along the axes of ``groups``."""
    axes = [axis for axis in map(MeshAxis.of, groups) if axis.size() > 1]
    type = UNTYPED if declared is None else declared.current()
    return Tag(type.with_placements(dict.fromkeys(axes, R)), None if declared is None else declared.origin)
