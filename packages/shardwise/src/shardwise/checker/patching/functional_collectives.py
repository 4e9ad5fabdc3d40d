"""Functional collectives that torch puts together from others: along another dim than the first, and in place.

Kernels know dim 0 only, and torch rearranges around them. ``all_reduce_inplace`` copies what a functional all-reduce
gives into its operand, which then has the type of what is copied.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import torch

from shardwise.interop.tensors.tagging import Tag, set_tag, tag_of
from shardwise.interop.torch_compat import REARRANGE_AFTER, REARRANGE_BEFORE

from ..collectives import rearranged_dims
from .patches import Patches, Plugin, Wrappers, checking_session

_DIMS = {
    "all_gather_single": "gather_dim",
    "all_gather_tensor": "gather_dim",
    "reduce_scatter_single": "scatter_dim",
    "reduce_scatter_tensor": "scatter_dim",
}
"""The functions that rearrange, and the parameter that says along which dim."""
_IN_PLACE = "all_reduce_inplace"


def _install(patches: Patches) -> None:
    wrap = functools.partial(rearranged_dims.wrap_rearranging, checking_session)
    patches.replace(REARRANGE_BEFORE, wrap)
    patches.replace(REARRANGE_AFTER, wrap)


@functools.cache
def _wrappers() -> Wrappers:
    module = REARRANGE_BEFORE.owner()
    known = {name: getattr(module, name) for name in _DIMS if hasattr(module, name)}
    wrapped = {function: _meaning(function, _DIMS[name]) for name, function in known.items()}
    if hasattr(module, _IN_PLACE):
        wrapped[getattr(module, _IN_PLACE)] = _copied(getattr(module, _IN_PLACE), module)
    return wrapped


def _copied(plain: Callable[..., object], module: Any) -> Callable[..., object]:
    @functools.wraps(plain)
    def all_reduce_inplace(
        tensor: Any, op: str = "sum", group: object = None, *args: object, **kwargs: object
    ) -> object:
        if checking_session() is None or args or kwargs:
            return plain(tensor, op, group, *args, **kwargs)
        reduced = module.all_reduce(tensor, op, group or torch.distributed.group.WORLD)
        tag = tag_of(reduced)
        set_tag(tensor, None if tag is None else Tag(tag.current(), tag.origin))
        return tensor.copy_(reduced)

    return all_reduce_inplace


def _meaning(plain: Callable[..., object], parameter: str) -> Callable[..., object]:
    signature = inspect.signature(plain)

    @functools.wraps(plain)
    def collective(*args: object, **kwargs: object) -> object:
        if checking_session() is None:
            return plain(*args, **kwargs)
        given = signature.bind(*args, **kwargs).arguments
        dim, ndim = given[parameter], given["self"].ndim
        with rearranged_dims.meaning(int(dim + ndim if dim < 0 else dim)):
            return plain(*args, **kwargs)

    return collective


PLUGIN = Plugin("functional collectives along another dim than the first, and in place", _install, everywhere=_wrappers)
