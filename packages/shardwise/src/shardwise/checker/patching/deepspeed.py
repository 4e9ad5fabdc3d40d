"""Engines of DeepSpeed: like ``DistributedDataParallel`` they keep parameters equal and average their gradients.

They do so in hooks, over buffers of which each rank keeps a part: what becomes of gradients is not followed there.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Protocol

import torch

from ..observation import wrappers
from .patches import Patches, Plugin, checking_session

_ENGINE = "deepspeed.runtime.engine"
_CLASS = "DeepSpeedEngine"
_EXPERT = "group_name"
"""What a parameter has that is of one expert parallel rank."""


class _Engine(Protocol):
    module: torch.nn.Module
    seq_data_parallel_group: object


def _install(patches: Patches) -> None:
    patches.replace_attribute(getattr(sys.modules[_ENGINE], _CLASS), "__init__", _wrap_making)


def _wrap_making(plain: Callable[..., object]) -> object:
    @functools.wraps(plain)
    def __init__(self: _Engine, *args: object, **kwargs: object) -> None:
        plain(self, *args, **kwargs)
        session = checking_session()
        if session is not None and session.observe:
            parameters = [one for one in self.module.parameters() if not hasattr(one, _EXPERT)]
            wrappers.equal(session, parameters, self.seq_data_parallel_group, "an engine of DeepSpeed")
            session.kept_elsewhere.update(dict.fromkeys(self.module.parameters(), True))

    return __init__


PLUGIN = Plugin("engines of DeepSpeed", _install, is_ready=lambda: hasattr(sys.modules.get(_ENGINE), _CLASS))
