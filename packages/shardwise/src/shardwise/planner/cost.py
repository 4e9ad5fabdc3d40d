"""What a step along one mesh axis costs: messages, and the bytes that each rank receives, counted exactly.

Ring algorithms, with n ranks: an all-gather of pieces of e elements brings (n - 1) e to every rank, a reduce-scatter or
an all-to-all of e elements n - 1 pieces of e / n, rounded up, and an all-reduce is a reduce-scatter and an all-gather.
Time is alpha-beta: messages times the latency of a link, plus bytes over its bandwidth (Hockney, 1994).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

_BITS = re.compile(r"\d+")


@dataclass(frozen=True, slots=True)
class Interconnect:
    """What connects the ranks of one axis: seconds per message, and bytes per second."""

    latency_s: float
    bytes_per_s: float


@dataclass(frozen=True, slots=True)
class Cost:
    """What one rank pays: ``messages`` one after another, and the ``elements`` and ``bytes`` that it receives."""

    messages: int = 0
    elements: int = 0
    bytes: int = 0

    def __add__(self, other: Cost) -> Cost:
        return Cost(self.messages + other.messages, self.elements + other.elements, self.bytes + other.bytes)

    def seconds(self, link: Interconnect) -> float:
        """The time it takes over ``link``."""
        return self.messages * link.latency_s + self.bytes / link.bytes_per_s


FREE = Cost()


def itemsize(dtype: str) -> int:
    """Bytes of one element of a dtype by its name: 2 for ``bfloat16``, 1 for ``bool`` and ``float8_e4m3fn``."""
    found = _BITS.search(dtype)
    return max(1, int(found[0]) // 8) if found else 1


def _pieces(elements: int, size: int) -> tuple[int, int]:
    return size - 1, (size - 1) * -(-elements // size)


def _twice(elements: int, size: int) -> tuple[int, int]:
    messages, received = _pieces(elements, size)
    return 2 * messages, 2 * received


_RINGS: dict[str, Callable[[int, int], tuple[int, int]]] = {
    "all_gather": lambda elements, size: (size - 1, (size - 1) * elements),
    "reduce_scatter": _pieces,
    "all_to_all": _pieces,
    "all_reduce": _twice,
    "broadcast": lambda elements, size: (size - 1, elements),
    "reduce": lambda elements, size: (size - 1, elements),
    "send": lambda elements, size: (1, 0),
    "recv": lambda elements, size: (1, elements),
}
"""Messages and elements received, of the elements that each rank holds before."""


def ring(op: str, elements: int, size: int) -> tuple[int, int]:
    """Messages and elements that a rank receives in ``op`` over ``size`` ranks that hold ``elements`` each."""
    return _RINGS[op](elements, size)


def cost_of(op: str, elements: int, size: int, dtype: str = "float32") -> Cost:
    """What ``op`` costs over ``size`` ranks that hold ``elements`` each; an op that does not communicate is free."""
    ring = _RINGS.get(op)
    if ring is None:
        return FREE
    messages, received = ring(elements, size)
    return Cost(messages, received, received * itemsize(dtype))
