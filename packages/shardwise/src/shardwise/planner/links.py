"""What connects the ranks of every axis: bandwidth and latency by axis, and what is assumed where nobody says.

Time is alpha-beta: messages times latency, and bytes over bandwidth. A collective over several axes goes at the pace of
the slowest. Where no latency is given it is 0, and then of two plans that send as many bytes the one with fewer
collectives is cheaper.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from shardwise.diagnostics.errors import SpmdValueError, shown

from .cost import Interconnect

ATTOSECONDS = 10**18
"""Of a second: times are whole numbers of these, so that their sums are exact."""

DEFAULT = Interconnect(0.0, 100e9)
"""Of an axis about which nothing is said: 100 GB/s, all axes alike, so that the plan with the fewest bytes wins."""

NAMED = {"nvlink": 450e9, "network": 50e9}
"""Bandwidths by name, in bytes per second and direction: NVLink 4 of an H100 SXM (900 GB/s both ways together, NVIDIA
H100 data sheet), and one 400 Gb/s port a GPU (NVIDIA ConnectX-7 data sheet)."""


@dataclass(frozen=True, slots=True)
class Links:
    """The interconnect of some axes; the others have the default.

    Example:
        >>> dp = MeshAxis.of(2, 4)
        >>> Links.of({dp: 50e9}).at(dp).bytes_per_s
        50000000000.0
    """

    known: tuple[tuple[object, Interconnect], ...] = ()

    @classmethod
    def of(cls, bandwidth: Mapping[object, float], latency_s: Mapping[Any, float] | None = None) -> Links:
        """Bytes per second, and seconds per message, by axis. Errors: SW905 for what is no such number."""
        latency_s = latency_s or {}
        for axis, value in bandwidth.items():
            _check(axis, value, 1.0, "bandwidth", "bytes per second")
        for axis, value in latency_s.items():
            _check(axis, value, 0.0, "latency", "seconds per message")
        links = {
            axis: Interconnect(latency_s.get(axis, DEFAULT.latency_s), bandwidth.get(axis, DEFAULT.bytes_per_s))
            for axis in (*bandwidth, *latency_s)
        }
        return cls(tuple(links.items()))

    def at(self, axis: object) -> Interconnect:
        """What connects the ranks of ``axis``."""
        return next((link for one, link in self.known if one is axis), DEFAULT)

    def integers(self, axes: Iterable[object]) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Attoseconds per byte, and per message, of every axis."""
        links = [self.at(axis) for axis in axes]
        return (
            tuple(round(ATTOSECONDS / link.bytes_per_s) for link in links),
            tuple(round(ATTOSECONDS * link.latency_s) for link in links),
        )


UNIFORM = Links()
"""All axes alike."""


def _check(axis: object, value: object, least: float, what: str, unit: str) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not least <= value < math.inf:
        raise SpmdValueError(
            f"the {what} of {axis!r} is a number of {unit}, at least {least:g}, got {shown(value)}", code="SW905"
        )
