"""Models of Megatron: parameters have their marks, and their memory, when the wrapper is made or they are called."""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable, Mapping

import torch

from shardwise.host.module_calls import OuterModules, telling_calls
from shardwise.interop.torch_compat import tree_leaves

from ..observation import megatron
from ..state.session import CheckSession
from .patches import Patches, Plugin, checking_session

_WRAPPERS = "megatron.core.distributed.distributed_data_parallel"


def _install(patches: Patches) -> None:
    patches.replace_attribute(sys.modules[_WRAPPERS].DistributedDataParallel, "__init__", _wrap_making)
    told = contextlib.ExitStack()
    told.enter_context(telling_calls(functools.partial(_called, OuterModules())))
    patches.on_undo(told.close)


def _called(outer: OuterModules, module: torch.nn.Module, args: Mapping[str, object]) -> None:
    session = _observing()
    if session is not None:
        if outer.is_new(module):
            megatron.type_parameters(session, module)
        if module in outer:
            megatron.type_inputs(session, tree_leaves(dict(args)))


def _wrap_making(plain: Callable[..., object]) -> object:
    @functools.wraps(plain)
    def __init__(self: torch.nn.Module, *args: object, **kwargs: object) -> None:
        plain(self, *args, **kwargs)
        session = _observing()
        if session is not None:
            megatron.type_parameters(session, self)

    return __init__


def _observing() -> CheckSession | None:
    session = checking_session()
    return session if session is not None and session.observe else None


PLUGIN = Plugin("models of Megatron", _install, is_ready=lambda: _WRAPPERS in sys.modules)
