"""The plug-ins of this folder: installed with the first thread that checks, taken away with the last.

They pass straight through on threads that do not check.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

import torch

from shardwise.interop.torch_compat import MissingName

from . import (
    autograd_functions,
    clipping,
    coalescing,
    compiled,
    control_flow,
    ddp,
    deepspeed,
    fsdp,
    func_grad,
    functional_collectives,
    grad_scaler,
    gradients,
    masked,
    megatron,
    module_hooks,
    nested,
    parameters,
    scripted,
    storages,
    swapping,
    threads,
    vmap,
)
from .numbers import group_sizes, number_calls, rank_numbers, seeds
from .patches import CALM, Patches, Plugin, look_for

PLUGINS: tuple[Plugin, ...] = (
    autograd_functions.PLUGIN,
    gradients.PLUGIN,
    ddp.PLUGIN,
    module_hooks.PLUGIN,
    parameters.plugin(lambda: _install_ready()),
    vmap.PLUGIN,
    func_grad.PLUGIN,
    control_flow.PLUGIN,
    functional_collectives.PLUGIN,
    coalescing.PLUGIN,
    storages.PLUGIN,
    scripted.PLUGIN,
    compiled.PLUGIN,
    masked.PLUGIN,
    nested.PLUGIN,
    grad_scaler.PLUGIN,
    clipping.PLUGIN,
    group_sizes.PLUGIN,
    group_sizes.CHOICES,
    rank_numbers.PLUGIN,
    number_calls.PLUGIN,
    seeds.PLUGIN,
    threads.PLUGIN,
    fsdp.FULLY_SHARD,
    fsdp.FSDP1,
    megatron.MODELS,
    megatron.SHARDS,
    swapping.PLUGIN,
    deepspeed.PLUGIN,
)

_lock = threading.RLock()
_threads = 0
_installed: dict[str, Patches] = {}
_switched_off: dict[str, str] = {}


def acquire() -> None:
    """Install the plug-ins, if no other thread has. Errors: MissingName if torch lacks what every check needs."""
    global _threads
    with _lock:
        _threads += 1
        if _threads == 1:
            try:
                _install_ready()
            except BaseException:
                release()
                raise


@contextlib.contextmanager
def installed() -> Iterator[None]:
    """Many checks share one installation, which takes longer than a small check."""
    acquire()
    try:
        yield
    finally:
        release()


def rehearse() -> None:
    """Find in every loaded module what a check replaces, so that processes forked from this one know where it is.

    Each would search alone, and to look at an object is to copy the page that counts its references.
    """
    for _ in range(CALM + 1):
        with installed():
            pass


def release() -> None:
    """Take the plug-ins away with the last thread that checks."""
    global _threads
    with _lock:
        _threads -= 1
        if _threads == 0:
            while _installed:
                _installed.popitem()[1].undo()


def not_followed() -> tuple[str, ...]:
    """What the installed torch does not let us follow, one line each."""
    return tuple(f"{part} are not followed on torch {torch.__version__}: {why}" for part, why in _switched_off.items())


def _install_ready() -> None:
    ready = [
        plugin
        for plugin in PLUGINS
        if plugin.part not in _installed and plugin.part not in _switched_off and plugin.is_ready()
    ]
    for plugin in ready:
        with contextlib.suppress(MissingName):
            look_for(plugin.everywhere())
    for plugin in ready:
        _install(plugin)


def _install(plugin: Plugin) -> None:
    _installed[plugin.part] = patches = Patches()
    try:
        plugin.install(patches)
        if wrappers := plugin.everywhere():
            patches.replace_everywhere(wrappers)
    except MissingName as missing:
        patches.undo()
        if plugin.tier == 1:
            raise
        _switched_off[plugin.part] = missing.message
