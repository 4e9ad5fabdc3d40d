"""What a program hands to torch's clipping and to a scheduler that watches a metric: torch makes plain numbers of it.

clip_grad_norm_(model.parameters(), loss.item())   another norm on each rank, though gradients are equal
scheduler.step(loss.item())                        each rank lowers its learning rate at another time
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence

import torch

from shardwise.interop.autograd.parameter_names import names_of

from ..gradients.step_settings import shared_setting
from .patches import Patches, Plugin, Wrappers, checking_session


def _wrappers() -> Wrappers:
    named = {"clip_grad_norm_": "max_norm", "clip_grad_value_": "clip_value"}
    functions = {getattr(torch.nn.utils, name): limit for name, limit in named.items()}
    return {plain: _wrap_clipping(plain, limit) for plain, limit in functions.items()}


def _install(patches: Patches) -> None:
    patches.replace_attribute(torch.optim.lr_scheduler.ReduceLROnPlateau, "step", _wrap_watching)


PLUGIN = Plugin("numbers that gradients are clipped by", _install, everywhere=_wrappers)


@functools.cache
def _wrap_clipping(plain: Callable[..., object], limit: str) -> Callable[..., object]:
    """``limit``  the argument that all ranks have to have alike."""
    signature = inspect.signature(plain)

    @functools.wraps(plain)
    def clip(*args: object, **kwargs: object) -> object:
        session = checking_session()
        if session is None:
            return plain(*args, **kwargs)
        given = signature.bind(*args, **kwargs).arguments
        several = given["parameters"]
        several = given["parameters"] = [several] if isinstance(several, torch.Tensor) else list(several)
        given[limit] = shared_setting(session, plain.__name__, limit, given[limit], several, _names)
        return plain(**given)

    return clip


def _wrap_watching(plain: Callable[..., object]) -> object:
    @functools.wraps(plain)
    def step(
        self: torch.optim.lr_scheduler.ReduceLROnPlateau, metrics: object, *args: object, **kwargs: object
    ) -> object:
        session = checking_session()
        if session is not None:
            held = [parameter for group in self.optimizer.param_groups for parameter in group["params"]]
            metrics = shared_setting(session, f"{type(self).__name__}.step", "metric", metrics, held, _names)
        return plain(self, metrics, *args, **kwargs)

    return step


def _names(parameters: Sequence[torch.Tensor]) -> list[str]:
    return names_of(parameters, {})
