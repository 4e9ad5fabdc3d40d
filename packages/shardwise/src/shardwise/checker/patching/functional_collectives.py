"""Functional collectives along another dim than the first: kernels know dim 0 only, torch rearranges around them."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable

from shardwise.interop.torch_compat import REARRANGE_AFTER, REARRANGE_BEFORE

from ..collectives import rearranged_dims
from .patches import Patches, Plugin, checking_session

_DIMS = {
    "all_gather_single": "gather_dim",
    "all_gather_tensor": "gather_dim",
    "reduce_scatter_single": "scatter_dim",
    "reduce_scatter_tensor": "scatter_dim",
}
"""The functions that rearrange, and the parameter that says along which dim."""


def _install(patches: Patches) -> None:
    wrap = functools.partial(rearranged_dims.wrap_rearranging, checking_session)
    patches.replace(REARRANGE_BEFORE, wrap)
    patches.replace(REARRANGE_AFTER, wrap)
    patches.replace_everywhere(_wrappers())


@functools.cache
def _wrappers() -> dict[Callable[..., object], Callable[..., object]]:
    module = REARRANGE_BEFORE.owner()
    known = {name: getattr(module, name) for name in _DIMS if hasattr(module, name)}
    return {function: _meaning(function, _DIMS[name]) for name, function in known.items()}


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


PLUGIN = Plugin("functional collectives along another dim than the first", _install)
