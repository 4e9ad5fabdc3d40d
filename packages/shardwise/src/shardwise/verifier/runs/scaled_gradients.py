"""Gradients that a program scales by a number of its own: is it one that clips?

    norm = sum(p.grad.norm().item() ** 2 for p in parameters) ** 0.5
    for p in parameters:
        p.grad.mul_(max_norm / norm)

Whatever the number comes of, it clips if it makes the norm of all gradients the same in several steps, in which that
was another one before. One by which a mean is taken, or a scale of the loss taken back, does not.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import torch

from shardwise.diagnostics.source import user_location
from shardwise.diagnostics.source_location import SourceLocation
from shardwise.interop.tensors.dtensors import is_dtensor
from shardwise.interop.torch_compat import no_torch_function, same_memory

_MULTIPLIES = (torch.Tensor.mul_, torch.Tensor.__imul__)
_DIVIDES = (torch.Tensor.div_, torch.Tensor.__itruediv__)
_SAME = 1e-3
"""How far norms may be apart, relative to each other, to be one: a program adds a little to what it divides by."""
_OTHER = 1e-2


@dataclass(slots=True)
class _Place:
    """A line at which gradients are scaled.

    ``seen``  of each step the factor, and the norm before.
    ``norm``  that which all steps have afterwards, where it is known.
    """

    seen: dict[int, tuple[float, float]] = field(default_factory=dict)
    norm: float | None = None


class ScaledGradients:
    """``told`` of each number that clips: the step, the number, and the line."""

    def __init__(self, told: Callable[[int, float, SourceLocation | None], object]) -> None:
        self._told = told
        self._places: defaultdict[SourceLocation | None, _Place] = defaultdict(_Place)

    def before(
        self, func: Callable[..., object], args: Sequence[object], parameters: Iterable[torch.Tensor], step: int
    ) -> None:
        """``func`` is about to be called, after so many steps."""
        if func not in _MULTIPLIES and func not in _DIVIDES:
            return
        with no_torch_function(), torch.no_grad():
            scaled, by = (args[0], _number(args[1])) if len(args) == 2 else (None, None)
            if not by or not isinstance(scaled, torch.Tensor):
                return
            factor = by if func in _MULTIPLIES else 1 / by
            gradients = [one.grad for one in parameters if one.grad is not None and not is_dtensor(one.grad)]
            if 0 < factor < 1 and any(same_memory(one, scaled) for one in gradients):
                place = self._places[user_location()]
                if step not in place.seen:
                    norm = math.sqrt(sum(float(one.double().square().sum()) for one in gradients))
                    self._take(place, step, factor, norm)

    def _take(self, place: _Place, step: int, factor: float, norm: float) -> None:
        location = user_location()
        new = {step: (factor, norm)}
        if place.norm is None:
            alike = {
                at: one
                for at, one in place.seen.items()
                if math.isclose(one[0] * one[1], factor * norm, rel_tol=_SAME)
                and not math.isclose(one[1], norm, rel_tol=_OTHER)
            }
            if alike:
                place.norm, new = factor * norm, alike | new
        place.seen[step] = factor, norm
        for at, (own, before) in new.items():
            if place.norm is not None and math.isclose(own * before, place.norm, rel_tol=_SAME):
                self._told(at, own, location)


def _number(x: object) -> float | None:
    """A number, or a tensor of one element that is no part of a graph."""
    if isinstance(x, (int, float)):
        return float(x)
    if isinstance(x, torch.Tensor) and x.numel() == 1 and not x.requires_grad and not is_dtensor(x):
        return float(x)
    return None
