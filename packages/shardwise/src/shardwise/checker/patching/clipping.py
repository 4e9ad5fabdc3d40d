"""What torch does to gradients before a step takes them, and what it goes by: norms, limits, and watched metrics.

get_total_norm(gradients, inf)                     a norm of norms, both of order inf
clip_grad_norm_(model.parameters(), loss.item())   another norm on each rank, though gradients are equal
scheduler.step(loss.item())                        each rank lowers its learning rate at another time

The largest magnitude of gradients that are split is a pending maximum of magnitudes, none of which is below zero, so
the largest of them is their norm. Types do not know that nothing is below zero, and would refuse the norm of a pending
maximum. Of the limits and metrics torch makes plain numbers, so they are looked at before.
"""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable, Iterable, Sequence

import torch

from shardwise.interop.autograd.parameter_names import names_of
from shardwise.interop.tensors.dtensors import is_dtensor

from ..gradients.step_settings import shared_setting
from .patches import Patches, Plugin, Wrappers, checking_session


def _wrappers() -> Wrappers:
    named = {"clip_grad_norm_": "max_norm", "clip_grad_value_": "clip_value"}
    functions = {getattr(torch.nn.utils, name): limit for name, limit in named.items()}
    total = torch.nn.utils.get_total_norm
    return {total: _wrap_norm(total), **{plain: _wrap_clipping(plain, limit) for plain, limit in functions.items()}}


def _install(patches: Patches) -> None:
    patches.replace_attribute(torch.optim.lr_scheduler.ReduceLROnPlateau, "step", _wrap_watching)


PLUGIN = Plugin("norms and clipping of gradients", _install, everywhere=_wrappers)


@functools.cache
def _wrap_norm(plain: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    @functools.wraps(plain)
    def get_total_norm(
        tensors: torch.Tensor | Iterable[torch.Tensor],
        norm_type: float = 2.0,
        error_if_nonfinite: bool = False,
        foreach: bool | None = None,
    ) -> torch.Tensor:
        several = [tensors] if isinstance(tensors, torch.Tensor) else list(tensors)
        of_largest = float(norm_type) == math.inf and several and not error_if_nonfinite
        if not of_largest or checking_session() is None or any(map(is_dtensor, several)):
            return plain(several, norm_type, error_if_nonfinite, foreach)
        with torch.no_grad():
            norms = [torch.linalg.vector_norm(tensor, math.inf) for tensor in several]
            return torch.stack([norm.to(several[0].device) for norm in norms]).amax()

    return get_total_norm


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
