"""``DistributedDataParallel``, whose reducer is C++ and shows itself nowhere, and the data of parallel ranks: loaders
that deal out batches, and what models are called with whose gradients are averaged.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Mapping

import torch

from shardwise.host.module_calls import OuterModules, telling_calls
from shardwise.interop.running.recording import overwritten, placed_alike
from shardwise.interop.torch_compat import tree_leaves
from shardwise.mesh.axis import MeshAxis

from ..gradients import replicas
from ..observation import batches, inputs, wrappers
from .patches import Patches, Plugin, checking_session


def _install(patches: Patches) -> None:
    wrap = functools.partial(replicas.wrap_forward, checking_session)
    patches.replace_attribute(torch.nn.parallel.DistributedDataParallel, "forward", wrap)
    patches.replace_attribute(torch.nn.parallel.DistributedDataParallel, "__init__", _wrap_making)
    patches.replace_attribute(
        torch.utils.data.DataLoader, "__iter__", functools.partial(batches.wrap_iter, checking_session)
    )
    told = contextlib.ExitStack()
    told.enter_context(telling_calls(functools.partial(_called, OuterModules())))
    patches.on_undo(told.close)


def _called(outer: OuterModules, module: torch.nn.Module, args: Mapping[str, object]) -> None:
    outer.is_new(module)
    session = checking_session()
    if session is None or not (session.observe and session.averaged) or module not in outer:
        return
    if next(module.parameters(), None) is not None:
        if session.data is not None:
            session.data.called(session, module, args)
        if session.local:  # V would say with global types that a dim is sharded, and not which
            inputs.type_data(session, tree_leaves(dict(args)))


def _wrap_making(plain: Callable[..., object]) -> object:
    @functools.wraps(plain)
    def __init__(self: torch.nn.parallel.DistributedDataParallel, *args: object, **kwargs: object) -> None:
        plain(self, *args, **kwargs)
        replicas.wrapped(self)
        session = checking_session()
        if kwargs.get("init_sync", True):
            overwritten([*self.parameters(), *self.buffers()])
        else:
            for parameter in self.parameters():
                placed_alike(parameter, [MeshAxis.of(self.process_group)], "DistributedDataParallel")
        if session is not None and session.observe:
            wrappers.replicated(session, self)

    return __init__


PLUGIN = Plugin("gradients of DistributedDataParallel", _install, tier=1)
