"""Charts as geometry: axes with round steps, paths and bars in a box of 1000 by 1000, drawn by the templates as SVG.

The template stretches the box to any width; positions of texts are given in percent, so that they are not stretched.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import tzinfo

from tracewise.explore.bind import GRAINS_US
from tracewise.explore.query import Shape
from tracewise.explore.timeparse import to_datetime

BOX = 1000.0
X_TICKS, Y_TICKS = 6, 4


@dataclass(frozen=True, slots=True)
class Tick:
    percent: float
    label: str


@dataclass(frozen=True, slots=True)
class Axis:
    """Values from ``low`` to ``high``; ``low`` is zero unless there are values below."""

    low: float
    high: float
    step: float

    @property
    def values(self) -> list[float]:
        first = math.ceil(self.low / self.step)
        last = math.floor(self.high / self.step + 1e-9)
        return [number * self.step for number in range(first, last + 1)]

    def percent(self, value: float) -> float:
        """From the top."""
        return round(100 * (self.high - value) / (self.high - self.low), 3)

    def y(self, value: float) -> float:
        return round(BOX * (self.high - value) / (self.high - self.low), 2)


Values = Sequence[float | None]


def value_axis(lines: Sequence[Values]) -> Axis:
    """An axis with round steps that holds all values."""
    found = [value for line in lines for value in line if value is not None]
    low, high = min(0.0, *found, 0.0), max(0.0, *found, 0.0)
    if low == high:
        high = low + 1
    step = round_step((high - low) / Y_TICKS)
    return Axis(math.floor(low / step) * step, math.ceil(high / step) * step, step)


def round_step(rough: float) -> float:
    """The smallest of 1, 2, 2.5, 5 times a power of ten that is not below ``rough``."""
    power = 10.0 ** math.floor(math.log10(rough)) if rough > 1e-300 else 1e-300
    return next((power * factor for factor in (1, 2, 2.5, 5, 10) if power * factor >= rough * (1 - 1e-9)), power * 10)


def stacked(lines: Sequence[Values]) -> list[list[float]]:
    """The upper edge of each line when they stand on each other; nothing counts as zero."""
    edges, below = list[list[float]](), [0.0] * (len(lines[0]) if lines else 0)
    for line in lines:
        below = [base + (value or 0.0) for base, value in zip(below, line, strict=True)]
        edges.append(below)
    return edges


def line_path(values: Values, axis: Axis, *, connects: bool) -> str:
    """A path through the middles of the buckets; a gap where there is no value, unless gaps are connected."""
    width, pieces, is_open = BOX / max(1, len(values)), list[str](), False
    for number, value in enumerate(values):
        if value is None:
            is_open = is_open and connects
            continue
        x = round((number + 0.5) * width, 2)
        alone = not is_open and (number + 1 == len(values) or values[number + 1] is None) and not connects
        pieces.append(f"{'L' if is_open else 'M'}{x:g} {axis.y(value):g}")
        if alone:  # a value between gaps is a dash as wide as its bucket, else it could not be seen
            pieces[-1] = f"M{x - width / 2:g} {axis.y(value):g}H{x + width / 2:g}"
        is_open = True
    return "".join(pieces)


def area_path(upper: Sequence[float], lower: Sequence[float], axis: Axis) -> str:
    width = BOX / max(1, len(upper))
    xs = [round((number + 0.5) * width, 2) for number in range(len(upper))]
    forth = [f"{x:g} {axis.y(value):g}" for x, value in zip(xs, upper, strict=True)]
    back = [f"{x:g} {axis.y(value):g}" for x, value in zip(reversed(xs), reversed(lower), strict=True)]
    return f"M{'L'.join((*forth, *back))}Z" if xs else ""


def bars_path(upper: Sequence[float], lower: Sequence[float], axis: Axis) -> str:
    """Bars a bucket wide, with a slit between them where there are few."""
    width = BOX / max(1, len(upper))
    slit = min(2.0, width * 0.1)
    bars = [
        f"M{number * width + slit / 2:.2f} {axis.y(low):g}V{axis.y(high):g}h{width - slit:.2f}V{axis.y(low):g}Z"
        for number, (high, low) in enumerate(zip(upper, lower, strict=True))
        if high != low
    ]
    return "".join(bars)


def paths(lines: Sequence[Values], shape: Shape, axis: Axis, *, connects: bool) -> list[str]:
    """One path a line."""
    if shape is Shape.LINES:
        return [line_path(line, axis, connects=connects) for line in lines]
    edges = stacked(lines)
    floors = [[0.0] * len(edges[0]), *edges] if edges else []
    draw = area_path if shape is Shape.AREA else bars_path
    return [draw(upper, lower, axis) for upper, lower in zip(edges, floors, strict=False)]


def time_ticks(start_us: int, length_us: int, zone: tzinfo) -> list[Tick]:
    """Round moments of the zone within the time, with as much of the date as tells them apart."""
    step = next((grain for grain in GRAINS_US if length_us <= grain * X_TICKS), GRAINS_US[-1])
    while length_us > step * X_TICKS * 2:
        step *= 2
    offset = _offset_us(start_us, zone)
    first = -(-(start_us + offset) // step) * step - offset
    moments = range(first, start_us + length_us + 1, step)
    return [Tick(round(100 * (at - start_us) / length_us, 3), _time_label(at, step, zone)) for at in moments]


def number_ticks(low: float, high: float) -> list[tuple[float, float]]:
    """Round numbers within a range: (percent from the left, number)."""
    step = round_step((high - low) / X_TICKS) if high > low else 1.0
    numbers = [step * number for number in range(math.ceil(low / step), math.floor(high / step) + 1)]
    return [(round(100 * (number - low) / (high - low), 3), number) for number in numbers] if high > low else []


def decade_ticks(low: float, high: float) -> list[tuple[float, float]]:
    """Powers of ten within a range whose places are those of its logarithm: (percent from the left, number)."""
    first, last = math.log10(low), math.log10(high)
    decades = range(math.ceil(first), math.floor(last) + 1)
    return (
        [(round(100 * (decade - first) / (last - first), 3), 10.0**decade) for decade in decades]
        if last > first
        else []
    )


def _offset_us(time_us: int, zone: tzinfo) -> int:
    try:
        offset = to_datetime(time_us, zone).utcoffset()
    except OverflowError:
        return 0
    return int(offset.total_seconds() * 1e6) if offset else 0


def _time_label(time_us: int, step_us: int, zone: tzinfo) -> str:
    try:
        moment = to_datetime(time_us, zone)
    except OverflowError:
        return str(time_us)
    if step_us >= 86_400_000_000:
        return moment.strftime("%m-%d")
    if step_us >= 60_000_000:
        return moment.strftime("%m-%d" if (moment.hour, moment.minute) == (0, 0) else "%H:%M")
    whole = moment.strftime("%H:%M:%S")
    if step_us >= 1_000_000:
        return whole
    digits = 6 if step_us < 1_000 else 3
    return f"{whole[3:]}.{moment.microsecond:06d}"[: 6 + digits]
