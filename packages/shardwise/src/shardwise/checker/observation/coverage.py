"""How much of a program has a type: the parameters of the modules that it calls, and what these are called with."""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

import torch
from torch.utils.weak import WeakIdKeyDictionary

from shardwise.diagnostics.result import Coverage
from shardwise.host.module_calls import telling_calls
from shardwise.interop.tensors.dtensors import is_dtensor
from shardwise.interop.tensors.tagging import tag_of
from shardwise.interop.torch_compat import is_flat_parameter, no_torch_function, tree_leaves


@contextlib.contextmanager
def counting(tell: Callable[[Coverage], None]) -> Iterator[None]:
    """At the end of the block ``tell`` gets what was counted: each parameter once, each argument of a module once.

    Counted are the outermost modules that the program calls, when it calls them for the first time.
    """
    count = _Count()
    try:
        with telling_calls(count.called):
            yield
    finally:
        tell(count.coverage)


class _Count:
    def __init__(self) -> None:
        self.coverage = Coverage()
        self._called: weakref.WeakSet[torch.nn.Module] = weakref.WeakSet()
        self._inner: weakref.WeakSet[torch.nn.Module] = weakref.WeakSet()
        self._parameters = WeakIdKeyDictionary()

    def called(self, module: torch.nn.Module, args: Mapping[str, object]) -> None:
        """``module`` is about to be called."""
        if module in self._called or module in self._inner:
            return
        self._called.add(module)
        with no_torch_function():
            for inner in module.modules():
                if inner is not module:
                    self._inner.add(inner)
            for parameter in module.parameters():
                if parameter not in self._parameters:
                    self._parameters[parameter] = True
                    self._count("parameters", _is_typed(parameter))
            for leaf in tree_leaves(dict(args)):
                if isinstance(leaf, torch.Tensor) and not leaf.requires_grad:
                    self._count("inputs", _is_typed(leaf))

    def _count(self, kind: str, typed: bool) -> None:
        before = {name: getattr(self.coverage, name) for name in (kind, f"typed_{kind}")}
        self.coverage = replace(
            self.coverage, **{kind: before[kind] + 1, f"typed_{kind}": before[f"typed_{kind}"] + typed}
        )


def _is_typed(x: torch.Tensor) -> bool:
    if is_dtensor(x) or is_flat_parameter(x):
        return True
    tag = tag_of(x)
    if tag is None:
        return False
    type = tag.current()
    return bool(type.local) or type.ground.is_constant
