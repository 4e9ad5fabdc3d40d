"""Parts of parameters in an optimizer that shares out its work: views of memory in which named parameters lie.

Such an optimizer has cut one flat buffer over the ranks, so what it steps has no name of its own. Its memory tells:

    the buffer of all gradients       [0, 60) 0.weight  [60, 70) 0.bias  [70, 100) 1.weight
    rank 1 of 2 steps [50, 100)       elements 50 to 60 of 0.weight, all of 0.bias and of 1.weight
"""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch

from shardwise.interop.running.recording import HeldElements, has_values
from shardwise.interop.tensors.dtensors import is_dtensor

BUFFERED = "main_grad"
"""Where wrappers with a buffer of their own keep the gradient of a parameter, as Megatron's and those like it."""


@dataclass(frozen=True, slots=True)
class FlatPart:
    """Elements ``start`` to ``stop`` of a parameter of ``shape``, flattened: those of a tensor from ``first`` on."""

    name: str
    shape: tuple[int, ...]
    start: int
    stop: int
    first: int


@dataclass(frozen=True, slots=True)
class _Span:
    """The addresses between which the elements of a tensor lie in their order."""

    start: int
    stop: int
    x: torch.Tensor
    name: str = ""


class FlatParts:
    """Where the parameters of these names lie now, and their gradients."""

    def __init__(self, named: Iterable[tuple[str, torch.Tensor]]) -> None:
        parameters, gradients = [], []
        for name, parameter in named:
            parameters += _spans(name, parameter)
            for gradient in (parameter.grad, getattr(parameter, BUFFERED, None)):
                gradients += _spans(name, gradient)
        self._parameters, self._gradients = (sorted(spans, key=_start) for spans in (parameters, gradients))

    def of(self, x: torch.Tensor) -> list[FlatPart]:
        """What ``x`` has of named parameters: by its own memory, else by that of its gradient, else nothing."""
        return _within(x, self._parameters) or _within(x.grad, self._gradients)


def held_elements(parts: Sequence[tuple[FlatPart, torch.Tensor]]) -> tuple[torch.Tensor, HeldElements | None]:
    """What a rank has of one parameter, of parts and their flat values; in its own shape and None if it has all."""
    ordered = sorted(parts, key=lambda one: one[0].start)
    ranges: list[tuple[int, int]] = []
    for part, _ in ordered:
        if ranges and ranges[-1][1] == part.start:
            ranges[-1] = (ranges[-1][0], part.stop)
        else:
            ranges.append((part.start, part.stop))
    value = torch.cat([one for _, one in ordered])
    held = HeldElements(ordered[0][0].shape, tuple(ranges))
    return (value.view(held.shape), None) if ranges == [(0, held.count)] else (value, held)


def _start(span: _Span) -> int:
    return span.start


def _spans(name: str, x: torch.Tensor | None) -> list[_Span]:
    if not isinstance(x, torch.Tensor) or is_dtensor(x) or not has_values(x) or not x.is_contiguous() or not x.numel():
        return []
    start = x.data_ptr()
    return [_Span(start, start + x.numel() * x.element_size(), x, name)]


def _within(x: torch.Tensor | None, spans: Sequence[_Span]) -> list[FlatPart]:
    found = []
    for own in _spans("", x):
        at = max(bisect.bisect_right(spans, own.start, key=_start) - 1, 0)
        while at < len(spans) and spans[at].start < own.stop:
            span, item = spans[at], own.x.element_size()
            start, stop = max(own.start, span.start), min(own.stop, span.stop)
            if start < stop and span.x.dtype == own.x.dtype and span.x.device == own.x.device:
                bounds = (start - span.start) // item, (stop - span.start) // item
                found.append(FlatPart(span.name, tuple(span.x.shape), *bounds, (start - own.start) // item))
            at += 1
    return found
