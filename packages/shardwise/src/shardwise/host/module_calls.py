"""What modules are called with, keywords too: PyTorch's own hooks before ``forward`` are shown positional arguments.

with telling_calls(tell):
    model(ids, mask=mask)       # tell(model, {"0": ids, "mask": mask}), and so for every module inside

What ``tell`` gives back is called when the module's call has ended.
"""

from __future__ import annotations

import contextlib
import functools
import weakref
from collections.abc import Callable, Iterator, Mapping

import torch

Ended = Callable[[], None]
Tell = Callable[[torch.nn.Module, Mapping[str, object]], Ended | None]
_told: list[Tell] = []


@contextlib.contextmanager
def telling_calls(tell: Tell, *, last: bool = False) -> Iterator[None]:
    """Inside the block ``tell`` gets every module that is called, and its arguments by position or by keyword.

    Blocks may overlap: who came last is told first, but who asks for it is told ``last``. Code that is being compiled
    is left alone: what a compiled module is called with is known from outside of it.
    """
    if not _told:
        torch.nn.Module.__call__ = _telling(torch.nn.Module.__call__)  # type: ignore[method-assign]
    _told.insert(0 if last else len(_told), tell)
    try:
        yield
    finally:
        _told.remove(tell)
        if not _told:
            now = torch.nn.Module.__call__  # the program may have put another one there
            torch.nn.Module.__call__ = getattr(now, "__wrapped__", now)  # type: ignore[method-assign]


def _telling(plain: Callable[..., object]) -> Callable[..., object]:
    @functools.wraps(plain)
    def __call__(self: torch.nn.Module, *args: object, **kwargs: object) -> object:
        if torch.compiler.is_compiling():
            return plain(self, *args, **kwargs)
        given = {**{str(at): value for at, value in enumerate(args)}, **kwargs}
        ends = [ended for tell in reversed(_told) if (ended := tell(self, given)) is not None]
        try:
            return plain(self, *args, **kwargs)
        finally:
            for ended in ends:
                ended()

    return __call__


class OuterModules:
    """The modules that a program calls itself, and not as parts of another that it has called."""

    def __init__(self) -> None:
        self._called: weakref.WeakSet[torch.nn.Module] = weakref.WeakSet()
        self._inner: weakref.WeakSet[torch.nn.Module] = weakref.WeakSet()

    def is_new(self, module: torch.nn.Module) -> bool:
        """True if ``module`` is one, and is called for the first time."""
        if module in self._called or module in self._inner:
            return False
        self._called.add(module)
        self._inner.update(inner for inner in module.modules() if inner is not module)
        return True

    def __contains__(self, module: torch.nn.Module) -> bool:
        return module not in self._inner
