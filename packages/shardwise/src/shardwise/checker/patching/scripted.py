"""Functions and modules that torch has compiled to its own language: no function mode sees what they do.

A function is checked as the Python function that it was made of, which computes the same; a module has nothing left of
its own, and is an operator without a rule.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from shardwise.interop.calls.boundary import outermost
from shardwise.interop.calls.op_names import OpName
from shardwise.interop.tensors.tagging import type_of
from shardwise.interop.torch_compat import SCRIPTED_METHOD, function_scripted, tree_leaves

from ..dispatch import no_rule
from .patches import Patches, Plugin, checking_session

Call = Callable[..., object]


def _install(patches: Patches) -> None:
    patches.replace_attribute(torch.jit.ScriptFunction, "__call__", _wrap)
    patches.replace(SCRIPTED_METHOD, _wrap)


def _wrap(plain: Call) -> Call:
    @outermost
    @functools.wraps(plain)
    def __call__(self: Any, *args: object, **kwargs: object) -> object:
        session = checking_session()
        if session is None or not any(_is_typed(leaf) for leaf in tree_leaves((args, kwargs))):
            return plain(self, *args, **kwargs)
        function = function_scripted(self)
        if function is not None and not isinstance(function, torch.nn.Module):
            return function(*args, **kwargs)
        return no_rule(OpName((self.name,)))(session, functools.partial(plain, self), args, kwargs)

    return __call__


def _is_typed(leaf: object) -> bool:
    return isinstance(leaf, torch.Tensor) and bool(type_of(leaf).axes)


PLUGIN = Plugin("scripted and traced functions", _install)
