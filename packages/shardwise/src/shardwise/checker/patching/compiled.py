"""Compiled functions and modules: while a thread checks, they run as they are written.

No function mode sees what a compiled graph does, so its results would have no type. Other threads compile as ever.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import torch

from shardwise.interop.torch_compat import COMPILING_CALLBACK, expect_no_graph

from .patches import Patches, Plugin, checking_session

Callback = Callable[[object], object]
Call = Callable[..., object]


def _install(patches: Patches) -> None:
    if COMPILING_CALLBACK.is_loaded():
        patches.replace(COMPILING_CALLBACK, _eager_where_checked)
        return

    def loading(plain: Call) -> Call:
        @functools.wraps(plain)
        def compile(*args: object, **kwargs: object) -> object:
            made = plain(*args, **kwargs)
            if COMPILING_CALLBACK.is_loaded() and not replaced:
                patches.replace(COMPILING_CALLBACK, _eager_where_checked)
                replaced.append(True)
            return made

        return compile

    replaced: list[bool] = []
    patches.replace_attribute(torch, "compile", loading)


def _eager_where_checked(plain: Callback) -> Callback:
    @functools.wraps(plain)
    def callback_of_call(callback: object) -> object:
        if checking_session() is None:
            return plain(callback)
        expect_no_graph()
        return None

    return callback_of_call


PLUGIN = Plugin("functions that torch.compile has compiled", _install)
