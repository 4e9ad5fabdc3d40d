"""Backward passes, what is reduced in them, and the optimizer's step."""

from __future__ import annotations

import torch

from shardwise.interop.torch_compat import RUN_BACKWARD

from ..gradients import backward_pass, optimizer_gate
from .patches import Patches, Plugin, checking_session


def _install(patches: Patches) -> None:
    patches.replace(RUN_BACKWARD, backward_pass.wrap_engine)
    patches.replace_attribute(torch.distributed.ProcessGroup, "allreduce", backward_pass.wrap_allreduce)
    patches.on_undo(optimizer_gate.stand(checking_session))


PLUGIN = Plugin("gradients", _install, tier=1)
