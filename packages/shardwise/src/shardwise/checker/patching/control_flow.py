"""``cond`` and its like, which compile what they run: without Dynamo the operator itself is called, which modes see."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence

from shardwise.interop.torch_compat import COMPILE_AND_CALL, function_modes

from ..control_flow import operators
from ..control_flow.interpreter import Interpreting
from .patches import Patches, Plugin, checking_session


def _install(patches: Patches) -> None:
    patches.replace(COMPILE_AND_CALL, _wrap)


def _wrap(plain: Callable[..., object]) -> object:
    @functools.wraps(plain)
    def call(fn: Callable[..., object], args: Sequence[object], kwargs: Mapping[str, object] | None = None) -> object:
        interpreted = any(isinstance(mode, Interpreting) for mode in function_modes())
        if interpreted or (checking_session() is not None and operators.can_handle(args)):
            return fn(*args, **(kwargs or {}))
        return plain(fn, args, kwargs)

    return call


PLUGIN = Plugin("cond, scan and their like", _install)
