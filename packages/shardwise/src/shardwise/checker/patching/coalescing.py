"""Calls that are gathered into one, and the device as a whole being waited for."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from shardwise.interop.torch_compat import COALESCING_MANAGER

from ..collectives.handles import wrap_coalescing
from ..operators.in_flight import land_all
from .patches import Patches, Plugin, Wrappers, checking_session


@functools.cache
def _wrap_gathering(plain: object) -> Any:
    return wrap_coalescing(checking_session, plain)


def _install(patches: Patches) -> None:
    for module in (torch.cuda, torch.accelerator):
        patches.replace_attribute(module, "synchronize", _wrap_synchronize)


def _wrappers() -> Wrappers:
    gathering = getattr(COALESCING_MANAGER.owner(), COALESCING_MANAGER.attribute)
    barrier = torch.distributed.barrier
    return {gathering: _wrap_gathering(gathering), barrier: _wrap_barrier(barrier)}


@functools.cache
def _wrap_barrier(plain: Callable[..., object]) -> Callable[..., object]:
    @functools.wraps(plain)
    def barrier(group: object = None, *args: object, **kwargs: object) -> object:
        session = checking_session()
        if session is not None and session.in_flight:
            land_all(session, group or torch.distributed.group.WORLD)
        return plain(group, *args, **kwargs)

    return barrier


def _wrap_synchronize(plain: Callable[..., object]) -> object:
    @functools.wraps(plain)
    def synchronize(*args: object, **kwargs: object) -> object:
        session = checking_session()
        if session is not None and session.in_flight:
            land_all(session)
        return plain(*args, **kwargs)

    return synchronize


PLUGIN = Plugin("calls that a coalescing manager gathers", _install, everywhere=_wrappers)
