"""How much of a program has a type: the parameters of the modules that it calls, and what these are called with."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

import torch
from torch.utils.weak import WeakIdKeyDictionary

from shardwise.diagnostics.result import Coverage
from shardwise.host.module_calls import OuterModules, telling_calls
from shardwise.interop.tensors.dtensors import is_dtensor
from shardwise.interop.tensors.tagging import type_of
from shardwise.interop.torch_compat import is_flattened, no_torch_function, tree_leaves


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
        self._outer = OuterModules()
        self._parameters = WeakIdKeyDictionary()

    def called(self, module: torch.nn.Module, args: Mapping[str, object]) -> None:
        """``module`` is about to be called."""
        if not self._outer.is_new(module):
            return
        with no_torch_function():
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
    if is_dtensor(x) or is_flattened(x):
        return True
    type = type_of(x)
    return bool(type.local) or type.ground.is_constant
