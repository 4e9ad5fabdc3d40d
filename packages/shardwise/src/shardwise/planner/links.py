"""What connects the ranks of every axis: bandwidth and latency by axis, and what is assumed where nobody says.

Time is alpha-beta: messages times latency, and bytes over bandwidth. A collective over several axes goes at the pace of
the slowest. Where no latency is given it is 0, and then of two plans that send as many bytes the one with fewer
collectives is cheaper.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from shardwise.diagnostics.errors import SpmdValueError, shown
from shardwise.mesh.axis import MeshAxis
from shardwise.mesh.layout import layout_of_ranks

from .cost import Interconnect

ATTOSECONDS = 10**18
"""Of a second: times are whole numbers of these, so that their sums are exact."""

DEFAULT = Interconnect(0.0, 100e9)
"""Of an axis about which nothing is said: 100 GB/s, all axes alike, so that the plan with the fewest bytes wins."""


@dataclass(frozen=True, slots=True)
class Links:
    """The interconnect of some axes; the others have the default.

    Example:
        >>> dp = MeshAxis.of(2, 4)
        >>> Links.of({dp: 50e9}).at(dp).bytes_per_s
        50000000000.0
    """

    known: tuple[tuple[MeshAxis, Interconnect], ...] = ()

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

    @classmethod
    def by_name(
        cls, bandwidth: Mapping[str, float], latency_s: Mapping[str, float], axes: Mapping[str, MeshAxis]
    ) -> Links:
        """The links of those of ``axes`` of which something is said. Errors: SW905."""
        return cls.of(
            {axes[name]: value for name, value in bandwidth.items() if name in axes},
            {axes[name]: value for name, value in latency_s.items() if name in axes},
        )

    def at(self, axis: object) -> Interconnect:
        """What connects the ranks of ``axis``."""
        return next((link for one, link in self.known if one is axis), DEFAULT)

    def over(self, ranks: Sequence[int]) -> Interconnect:
        """What a collective of ``ranks`` goes over: the slowest of the axes that they are spread over, and the default
        where these do not account for all of them.

        Example:
            >>> links = Links.of({MeshAxis.of(2, 4): 50e9})
            >>> [links.over(ranks).bytes_per_s for ranks in ([0, 1, 2, 3], [0, 4], [1, 3, 5, 7])]
            [100000000000.0, 50000000000.0, 50000000000.0]
        """
        layout = layout_of_ranks(ranks)
        return self._slowest(None if layout is None else MeshAxis(layout), len(ranks))

    def along(self, axis: MeshAxis) -> Interconnect:
        """The same of the ranks of an axis, which may be several of those that are known."""
        return self._slowest(axis, axis.size())

    def _slowest(self, axis: MeshAxis | None, ranks: int) -> Interconnect:
        inside = [] if axis is None else [one for one in self.known if one[0] <= axis]
        links = [link for _, link in inside]
        if math.prod(one.size() for one, _ in inside) < ranks or not links:
            links.append(DEFAULT)
        return Interconnect(max(one.latency_s for one in links), min(one.bytes_per_s for one in links))

    def integers(self, axes: Iterable[object]) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Attoseconds per byte, and per message, of every axis."""
        links = [self.at(axis) for axis in axes]
        return (
            tuple(round(ATTOSECONDS / link.bytes_per_s) for link in links),
            tuple(round(ATTOSECONDS * link.latency_s) for link in links),
        )


UNIFORM = Links()
"""All axes alike."""


@dataclass(frozen=True)
class NamedLinks:
    """What is said of links by the names of axes, as a configuration says it: bytes per second, seconds per message.

    In dicts, which travel to other processes.
    """

    bandwidth: Mapping[str, float] = field(default_factory=dict)
    latency_s: Mapping[str, float] = field(default_factory=dict)

    def on(self, axes: Mapping[str, MeshAxis]) -> Links:
        """The links of those of ``axes`` of which something is said. Errors: SW905."""
        return Links.by_name(self.bandwidth, self.latency_s, axes)


def _check(axis: object, value: object, least: float, what: str, unit: str) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not least <= value < math.inf:
        raise SpmdValueError(
            f"the {what} of {axis!r} is a number of {unit}, at least {least:g}, got {shown(value)}", code="SW905"
        )
