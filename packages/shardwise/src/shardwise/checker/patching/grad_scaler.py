"""The scaler of losses in mixed precision: it takes away from gradients what it has multiplied the loss by.

So a loss that it has scaled is on the scale that it had, and gradients are on theirs, whatever its factor is.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import torch

from shardwise.interop.tensors.tagging import set_tag, tag_of, type_of

from .patches import Patches, Plugin, checking_session


def _install(patches: Patches) -> None:
    patches.replace_attribute(torch.amp.GradScaler, "scale", _wrap_scale)


PLUGIN = Plugin("the scaler of losses", _install)


def _wrap_scale(plain: Callable[..., object]) -> object:
    @functools.wraps(plain)
    def scale(self: object, outputs: object) -> object:
        result = plain(self, outputs)
        if checking_session() is not None:
            _restore(outputs, result)
        return result

    return scale


def _restore(given: object, made: object) -> None:
    """``made`` has the scale of what was ``given``, one by one where several were."""
    if isinstance(given, torch.Tensor):
        tag = tag_of(made)
        if tag is not None:
            set_tag(made, tag.of_type(tag.current().with_scale(type_of(given).scale), tag.origin))
    elif isinstance(given, (list, tuple)) and isinstance(made, (list, tuple)):
        for one, other in zip(given, made, strict=True):
            _restore(one, other)
