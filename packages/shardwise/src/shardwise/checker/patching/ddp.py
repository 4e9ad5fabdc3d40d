"""``DistributedDataParallel``, whose reducer is C++ and shows itself nowhere."""

from __future__ import annotations

import functools

import torch

from ..gradients import replicas
from .patches import Patches, Plugin, checking_session


def _install(patches: Patches) -> None:
    wrap = functools.partial(replicas.wrap_forward, checking_session)
    patches.replace_attribute(torch.nn.parallel.DistributedDataParallel, "forward", wrap)


PLUGIN = Plugin("gradients of DistributedDataParallel", _install, tier=1)
