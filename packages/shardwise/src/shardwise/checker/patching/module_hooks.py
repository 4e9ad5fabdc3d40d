"""Backward hooks of modules, which work through a hidden autograd function."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from shardwise.interop.torch_compat import APPLY_HOOK_TO_INPUT, APPLY_HOOK_TO_OUTPUT, MAKE_BACKWARD_HOOK

from ..functions.backward_hooks import check_hooks, follow, noting
from .patches import Patches, Plugin, checking_session


def _install(patches: Patches) -> None:
    patches.replace(MAKE_BACKWARD_HOOK, _wrap_making)
    patches.replace(APPLY_HOOK_TO_INPUT, functools.partial(noting, "inputs"))
    patches.replace(APPLY_HOOK_TO_OUTPUT, functools.partial(noting, "outputs"))


def _wrap_making(plain: Callable[..., object]) -> object:
    @functools.wraps(plain)
    def __init__(self: object, module: object, user_hooks: Any, user_pre_hooks: Any) -> None:
        session = checking_session()
        if session is not None:
            check_hooks(session, module, (*user_hooks, *user_pre_hooks))
        plain(self, module, user_hooks, user_pre_hooks)
        if session is not None:
            follow(self)

    return __init__


PLUGIN = Plugin("backward hooks of modules", _install)
