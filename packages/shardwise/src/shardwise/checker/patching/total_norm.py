"""Largest magnitudes over several gradients, as ``torch.nn.utils`` takes them: a norm of norms, both of order inf.

Of gradients that are split it is a pending maximum of magnitudes, none of which is below zero, so the largest of them
is their norm. Types do not know that nothing is below zero, and would refuse the norm of a pending maximum.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable

import torch

from shardwise.interop.tensors.dtensors import is_dtensor

from .patches import Plugin, Wrappers, checking_session


def _wrappers() -> Wrappers:
    plain = torch.nn.utils.get_total_norm
    return {plain: _wrap(plain)}


@functools.cache
def _wrap(plain: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
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


PLUGIN = Plugin("total norms of gradients", everywhere=_wrappers)
