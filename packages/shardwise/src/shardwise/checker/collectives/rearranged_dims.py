"""Which dim does a functional collective gather or scatter? Its kernel knows dim 0 only; torch rearranges around it.

``all_gather_tensor(x, 1, group)`` gathers along dim 0, cuts the result into the ranks' pieces and puts them together
along dim 1; a reduce-scatter does so beforehand. The rearranged copy is no tensor of the program: between the two it is
typed as if nothing had been moved, and the collective as what the whole function is.
Source: ``torch.distributed._functional_collectives``.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Mapping
from types import CodeType
from typing import Any

from shardwise.interop.tagging import Tag, set_tag, tag_of
from shardwise.interop.torch_compat import functional_collectives_module, without_torch_function

from ..state.session import CheckSession

_FRAMES_AROUND = 8
"""Between a function's frame and the handler of its kernel: the dispatcher's and our own."""


def watch(replace: Callable[[Any, str, Any], None], session: Callable[[], CheckSession | None]) -> None:
    """Wrap the two helpers that rearrange; ``replace`` puts a wrapper in the place of a module's function."""
    module = functional_collectives_module()
    for name in ("_chunk_or_narrow_cat", "_maybe_view_chunk_cat"):
        if hasattr(module, name):
            replace(module, name, functools.partial(_wrap, session))


def _wrap(session: Callable[[], CheckSession | None], plain: Any) -> Any:
    @functools.wraps(plain)
    def rearrange(tensor: Any, *args: Any, **kwargs: Any) -> Any:
        tag = None if session() is None else tag_of(tensor)
        if tag is None:
            return plain(tensor, *args, **kwargs)
        with without_torch_function():
            made = plain(tensor, *args, **kwargs)
        set_tag(made, Tag(tag.current(), tag.origin))
        return made

    return rearrange


def dim_meant() -> int:
    """The tensor dim that the functional collective means whose kernel is about to run; 0 if there is no such."""
    functions = _functions()
    frame = sys._getframe(1)
    for _ in range(_FRAMES_AROUND):
        parameter = functions.get(frame.f_code)
        if parameter is not None:
            dim, ndim = frame.f_locals[parameter], frame.f_locals["self"].ndim
            return int(dim + ndim if dim < 0 else dim)
        if frame.f_back is None:
            break
        frame = frame.f_back
    return 0


@functools.cache
def _functions() -> Mapping[CodeType, str]:
    """The functions that rearrange, and the parameter that says along which dim."""
    module = functional_collectives_module()
    names = {
        "all_gather_single": "gather_dim",
        "all_gather_tensor": "gather_dim",
        "reduce_scatter_single": "scatter_dim",
        "reduce_scatter_tensor": "scatter_dim",
    }
    return {getattr(module, name).__code__: dim for name, dim in names.items() if hasattr(module, name)}
