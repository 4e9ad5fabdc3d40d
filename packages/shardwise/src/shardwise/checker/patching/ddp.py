"""``DistributedDataParallel``, whose reducer is C++ and shows itself nowhere, and loaders that deal out batches."""

from __future__ import annotations

import functools
from collections.abc import Callable

import torch

from ..gradients import replicas
from ..observation import batches, wrappers
from .patches import Patches, Plugin, checking_session


def _install(patches: Patches) -> None:
    wrap = functools.partial(replicas.wrap_forward, checking_session)
    patches.replace_attribute(torch.nn.parallel.DistributedDataParallel, "forward", wrap)
    patches.replace_attribute(torch.nn.parallel.DistributedDataParallel, "__init__", _wrap_making)
    patches.replace_attribute(
        torch.utils.data.DataLoader, "__iter__", functools.partial(batches.wrap_iter, checking_session)
    )


def _wrap_making(plain: Callable[..., object]) -> object:
    @functools.wraps(plain)
    def __init__(self: object, *args: object, **kwargs: object) -> None:
        plain(self, *args, **kwargs)
        session = checking_session()
        if session is not None and session.observe:
            wrappers.replicated(session, self)

    return __init__


PLUGIN = Plugin("gradients of DistributedDataParallel", _install, tier=1)
