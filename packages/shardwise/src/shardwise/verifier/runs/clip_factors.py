"""The factors by which gradients are clipped: behind them nothing shows of how large the gradients were.

    factor = torch.clamp(max_norm / (norm + 1e-6), max=1.0)    torch's own, and what is written like it

    norm = sum(p.grad.norm().item() ** 2 for p in parameters) ** 0.5
    for p in parameters:
        p.grad.mul_(max_norm / norm)                           a number of the program's own

Whatever such a number comes of, it clips if it makes the norm of all gradients the same in several steps, in which that
was another one before. One by which a mean is taken, or a scale of the loss taken back, does not.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import torch

from shardwise.diagnostics.source import user_location
from shardwise.diagnostics.source_location import SourceLocation
from shardwise.interop.tensors.dtensors import is_dtensor, is_pending
from shardwise.interop.tensors.local_form import local_tensor
from shardwise.interop.torch_compat import no_torch_function, same_memory

_CLAMPS = (torch.clamp, torch.Tensor.clamp, torch.clip, torch.Tensor.clip)
_CLAMPS_ABOVE = (torch.clamp_max, torch.Tensor.clamp_max)
_MULTIPLIES = (torch.Tensor.mul_, torch.Tensor.__imul__)
_DIVIDES = (torch.Tensor.div_, torch.Tensor.__itruediv__)
_SAME = 1e-3
"""How far norms may be apart, relative to each other, to be one: a program adds a little to what it divides by."""
_OTHER = 1e-2


@dataclass(slots=True)
class _Place:
    """A line at which gradients are scaled by a number.

    ``seen``  of each step the factor, and the norm before.
    ``norm``  that which all steps have afterwards, where it is known.
    """

    seen: dict[int, tuple[float, float]] = field(default_factory=dict)
    norm: float | None = None


class ClipFactors:
    """``told`` of each: the step for which it is known, as a name, the factor, and the line."""

    def __init__(
        self,
        parameters: Callable[[], Iterable[torch.Tensor]],
        told: Callable[[str, torch.Tensor, SourceLocation | None], object],
    ) -> None:
        self._parameters, self._told = parameters, told
        self._places: defaultdict[SourceLocation | None, _Place] = defaultdict(_Place)

    def before(self, func: Callable[..., object], args: Sequence[object], step: int) -> None:
        """``func`` is about to be called, in this step: does it scale a gradient by a number?"""
        if func not in _MULTIPLIES and func not in _DIVIDES:
            return
        with no_torch_function(), torch.no_grad():
            scaled, by = (args[0], _number(args[1])) if len(args) == 2 else (None, None)
            if not by or not isinstance(scaled, torch.Tensor):
                return
            factor = by if func in _MULTIPLIES else 1 / by
            gradients = [one.grad for one in self._parameters() if one.grad is not None and not is_dtensor(one.grad)]
            if 0 < factor < 1 and any(same_memory(one, scaled) for one in gradients):
                location = user_location()
                if step not in self._places[location].seen:
                    norm = math.sqrt(sum(float(one.double().square().sum()) for one in gradients))
                    self._scaled(location, step, factor, norm)

    def after(
        self, func: Callable[..., object], args: Sequence[object], kwargs: Mapping[str, object], result: object
    ) -> None:
        """``func`` has come back: has it made a number held to at most 1, while gradients wait for a step?"""
        if not _is_held_to_one(func, args, kwargs) or not isinstance(result, torch.Tensor):
            return
        with no_torch_function():
            if result.numel() != 1 or result.requires_grad or not result.is_floating_point() or is_pending(result):
                return
            waits = any(parameter.grad is not None for parameter in self._parameters())
        if waits:
            self._told("", local_tensor(result), user_location())

    def _scaled(self, location: SourceLocation | None, step: int, factor: float, norm: float) -> None:
        place, new = self._places[location], {step: (factor, norm)}
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
                self._told(f" in step {at}", torch.tensor(own), location)


def _is_held_to_one(func: Callable[..., object], args: Sequence[object], kwargs: Mapping[str, object]) -> bool:
    if func in _CLAMPS:
        low, high = (*args[1:3], None, None)[:2]
        return kwargs.get("min", low) is None and kwargs.get("max", high) == 1
    return func in _CLAMPS_ABOVE and kwargs.get("max", args[1] if len(args) > 1 else None) == 1


def _number(x: object) -> float | None:
    """A number, or a tensor of one element that is no part of a graph."""
    if isinstance(x, (int, float)):
        return float(x)
    if isinstance(x, torch.Tensor) and x.numel() == 1 and not x.requires_grad and not is_dtensor(x):
        return float(x)
    return None
