"""Is the backward of an autograd function the derivative of its forward? Small steps in double precision, on one rank.

Nothing is said where forward has no derivative (the slopes to both sides, or of steps of two lengths, differ), where it
is the identity, where it rounds, and where it does not change at all: there a backward that gives something means
another gradient.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from shardwise.interop.torch_call import TorchFunction
from shardwise.interop.torch_compat import DispatchMode

from .function_runs import FunctionObservation, FunctionRuns, NotRun

_STEP = 1e-6
"""Relative to the largest element of an operand."""
_SMOOTH = 1e-4
_APART = 1e-3
_TINY = 1e-10
_TRIES = 2
_ROUNDING = ("round", "floor", "ceil", "trunc", "quantize_per_tensor", "quantize_per_channel")


@dataclass(frozen=True)
class WrongDerivative:
    """Along a direction forward changes by ``forward``, and backward says that it does by ``backward``.

    ``operand``  its position among the floating-point operands.
    """

    operand: int
    forward: float
    backward: float


def wrong_derivative_of(runs: FunctionRuns, values: Sequence[torch.Tensor]) -> WrongDerivative | None:
    """The first operand for which backward is not the derivative at ``values``; None if there is none, or nobody knows.

    Errors: NotRun.
    """
    exact = [value.detach().to("cpu", torch.float64) for value in values]
    for attempt in range(_TRIES):
        noise = torch.Generator().manual_seed(attempt)
        at = [x + attempt * 1e-2 * _scale(x) * _normal(x, noise) for x in exact]  # away from zeros that are no chance
        found, clear = _compared(runs, at, noise)
        if clear:
            return found
    return None


def _compared(
    runs: FunctionRuns, values: Sequence[torch.Tensor], noise: torch.Generator
) -> tuple[WrongDerivative | None, bool]:
    """What is wrong at ``values``, and whether all could be compared."""
    with _Roundings() as roundings:
        base = _observed(runs, values)
    if roundings.met:
        return None, True  # its steps have no slope, and the scale that they are taken at has a small one
    if not all(map(torch.equal, _observed(runs, values).points[0].results, base.points[0].results)):
        return None, True  # it draws numbers of its own, or remembers
    seeds = [_normal(one, noise).to(one.dtype) for one in base.points[0].results]
    back = _observed(runs, values, seeds)
    clear = True
    for i, at in enumerate(runs.operands):
        gradient = back.points[0].gradients[i] if back.points[0].gradients else None
        if at not in runs.differentiated or gradient is None or gradient.shape != values[i].shape:
            continue
        if any(one.shape == values[i].shape and torch.equal(one.double(), values[i]) for one in base.points[0].results):
            continue
        direction = _normal(values[i], noise)
        step = _STEP * max(_scale(values[i]), 1e-3)
        up, down, far_up, far_down = (
            _along(runs, values, i, length * direction, seeds, base) for length in (step, -step, 4 * step, -4 * step)
        )
        slope, size = (up - down) / (2 * step), max(abs(up), abs(down)) / step
        said = float((gradient.double() * direction).sum())
        if size <= _TINY * max(1.0, abs(said)):
            continue  # it does not change: a step, whose gradient is somebody's choice
        curved = abs(up + down) / step > _SMOOTH * size
        if curved or abs((far_up - far_down) / (8 * step) - slope) > _SMOOTH * size:
            clear = False
            continue
        if abs(slope - said) > _APART * max(size, abs(said)):
            return WrongDerivative(i, slope, said), True
    return None, clear


class _Roundings(DispatchMode):  # type: ignore[no-untyped-call]
    """Sees whether anything is rounded, by a cast to integers or float8 as well; other casts are fine steps."""

    def __init__(self) -> None:
        super().__init__()
        self.met = False

    def __torch_dispatch__(
        self,
        func: TorchFunction,
        types: object,
        args: Sequence[object] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> object:
        result = func(*args, **(kwargs or {}))
        name, _, _ = func.__name__.partition(".")
        if name == "_to_copy" and isinstance(result, torch.Tensor):
            from_float = isinstance(args[0], torch.Tensor) and args[0].is_floating_point()
            self.met |= from_float and (result.element_size() == 1 or not result.is_floating_point())
        self.met |= name.removesuffix("_") in _ROUNDING
        return result


def _along(
    runs: FunctionRuns,
    values: Sequence[torch.Tensor],
    i: int,
    change: torch.Tensor,
    seeds: Sequence[torch.Tensor],
    base: FunctionObservation,
) -> float:
    """How much the results, weighted by ``seeds``, change if operand ``i`` does."""
    moved = [x + change if at == i else x for at, x in enumerate(values)]
    after = _observed(runs, moved).points[0].results
    if [one.shape for one in after] != [one.shape for one in base.points[0].results]:
        raise NotRun("the shape of a result depends on values")
    pairs = zip(seeds, after, base.points[0].results, strict=True)
    return sum(float((seed.double() * (a.double() - b.double())).sum()) for seed, a, b in pairs)


def _observed(
    runs: FunctionRuns, values: Sequence[torch.Tensor], seeds: Sequence[torch.Tensor] | None = None
) -> FunctionObservation:
    sent = None if seeds is None else lambda rank, results: seeds
    return runs.observe(lambda rank: values, sent, None, (runs.rank,), alone=True)


def _normal(x: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    return torch.randn(x.shape, generator=generator, dtype=torch.float64)


def _scale(x: torch.Tensor) -> float:
    return float(x.abs().max()) if x.numel() else 1.0
