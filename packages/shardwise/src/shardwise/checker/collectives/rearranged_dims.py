"""The dim that a functional collective gathers or scatters. Its kernel knows dim 0 only; torch rearranges around it.

``all_gather_tensor(x, 1, group)`` gathers along dim 0, cuts the result into the ranks' pieces and puts them together
along dim 1; a reduce-scatter does so beforehand. The rearranged copy is no tensor of the program: between the two it is
typed as if nothing had been moved, and the collective as what the whole function is.
Source: ``torch.distributed._functional_collectives``.
"""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable, Iterator

from shardwise.interop.tensors.tagging import Tag, set_tag, tag_of
from shardwise.interop.torch_compat import without_torch_function

from ..state.session import CheckSession


class _Local(threading.local):
    dim = 0


_local = _Local()


@contextlib.contextmanager
def meaning(dim: int) -> Iterator[None]:
    """Inside the block a kernel along dim 0 is part of a collective along ``dim``."""
    before, _local.dim = _local.dim, dim
    try:
        yield
    finally:
        _local.dim = before


def dim_meant() -> int:
    """The tensor dim that the functional collective means whose kernel is about to run; 0 if there is no such."""
    return _local.dim


def wrap_rearranging(session: Callable[[], CheckSession | None], plain: Callable[..., object]) -> object:
    """A helper that rearranges, whose result keeps the type of its operand."""

    @functools.wraps(plain)
    def rearrange(tensor: object, *args: object, **kwargs: object) -> object:
        tag = None if session() is None else tag_of(tensor)
        if tag is None:
            return plain(tensor, *args, **kwargs)
        with without_torch_function():
            made = plain(tensor, *args, **kwargs)
        set_tag(made, Tag(tag.current(), tag.origin))
        return made

    return rearrange
