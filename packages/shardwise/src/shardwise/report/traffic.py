"""The collectives of a run in tables and on a line of time: by axis, by source line, and one after the other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from shardwise.diagnostics.printing.quantities import duration
from shardwise.diagnostics.run_record import AssumedLink, CostedCall
from shardwise.diagnostics.source_location import SourceLocation

MOST_BARS = 1500
"""Bars of the timeline; calls that follow each other on one axis are joined until there are no more."""
WIDTH = 1000.0
LANE = 26


@dataclass(frozen=True, slots=True)
class Traffic:
    """Calls taken together: ``what`` they are, their number, the bytes one rank receives and the time it takes."""

    what: str
    axis: str
    size: int
    calls: int
    bytes: int
    seconds: float
    location: SourceLocation | None = None
    typed: str = ""
    transition: str = ""


@dataclass(frozen=True, slots=True)
class Bar:
    """A stretch of the timeline, in its units, with what it is."""

    x: float
    width: float
    lane: int
    calls: int
    what: str
    axis: str
    bytes: int
    seconds: float
    location: SourceLocation | None


@dataclass(frozen=True, slots=True)
class Timeline:
    """The calls of ``rank``: what each axis does when, if nothing but communication takes time."""

    rank: int
    axes: tuple[str, ...]
    bars: tuple[Bar, ...]
    seconds: float

    @property
    def height(self) -> int:
        return LANE * len(self.axes)


def of_one_rank(calls: Sequence[CostedCall]) -> list[CostedCall]:
    """Those of the first rank: numbers are what one rank receives."""
    return [call for call in calls if call.rank == calls[0].rank]


def by_axis(calls: Sequence[CostedCall]) -> list[Traffic]:
    """One entry an axis and kind, the dearest axis first."""
    entries = _grouped(calls, lambda call: (call.axis, call.kind))
    axes: dict[str, float] = {}
    for entry in entries:
        axes[entry.axis] = axes.get(entry.axis, 0.0) + entry.seconds
    return sorted(entries, key=lambda entry: (-axes[entry.axis], entry.axis, -entry.seconds))


def by_line(calls: Sequence[CostedCall]) -> list[Traffic]:
    """One entry a source line, axis and kind, the dearest first."""
    entries = _grouped(calls, lambda call: (call.location, call.axis, call.kind, call.op, call.typed))
    return sorted(entries, key=lambda entry: -entry.seconds)


def _grouped(calls: Sequence[CostedCall], key_of: object) -> list[Traffic]:
    groups: dict[object, list[CostedCall]] = {}
    for call in calls:
        groups.setdefault(key_of(call), []).append(call)  # type: ignore[operator]
    return [
        Traffic(
            _what(group[0]),
            group[0].axis,
            len(group[0].ranks),
            len(group),
            sum(call.bytes for call in group),
            sum(call.seconds for call in group),
            group[0].location,
            group[0].typed,
            group[0].transition,
        )
        for group in groups.values()
    ]


def _what(call: CostedCall) -> str:
    return f"{call.kind}({call.op})" if call.op else call.kind


def timeline(calls: Sequence[CostedCall]) -> Timeline:
    """All calls one after the other, as wide as they take time."""
    axes = tuple(dict.fromkeys(call.axis for call in calls))
    total = sum(call.seconds for call in calls)
    scale = WIDTH / total if total else 0.0
    narrowest = WIDTH / MOST_BARS if len(calls) > MOST_BARS else 0.0
    bars: list[Bar] = []
    at = 0.0
    for call in calls:
        width = call.seconds * scale
        last = bars[-1] if bars else None
        if last is not None and last.width < narrowest and last.axis == call.axis:
            what = last.what if last.what == _what(call) else "several"
            bars[-1] = Bar(
                last.x,
                last.width + width,
                last.lane,
                last.calls + 1,
                what,
                last.axis,
                last.bytes + call.bytes,
                last.seconds + call.seconds,
                last.location,
            )
        else:
            lane = axes.index(call.axis)
            bars.append(Bar(at, width, lane, 1, _what(call), call.axis, call.bytes, call.seconds, call.location))
        at += width
    return Timeline(calls[0].rank if calls else 0, axes, tuple(bars), total)


def link_text(link: AssumedLink) -> str:
    """``tp: 100 GB/s (assumed ...)``."""
    latency = f", {duration(link.latency_s)} a message" if link.latency_s else ""
    return f"{link.axis}: {link.bytes_per_s / 1e9:g} GB/s{latency}" + (f" ({link.said})" if link.said else "")
