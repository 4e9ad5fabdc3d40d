"""What the templates show of a result: texts of cells and groups, charts as paths, the legend's lines."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from markupsafe import Markup

from tracewise.explore import chart
from tracewise.explore.bind import Bound, BoundMeasure, Named
from tracewise.explore.links import Links
from tracewise.explore.query import Aggregate, Fill, Scale, Shape, View
from tracewise.explore.results import DistributionResult, Group, Line, SeriesResult, TableResult
from tracewise.explore.text import (
    cell_text,
    change_text,
    compact_text,
    grain_text,
    key_text,
    measure_text,
    number_text,
    quantity_text,
)
from tracewise.explore.timeparse import time_text
from tracewise.store.table import Kind

SHORT_CELL = 100
COLOURS = 10  # classes s0 to s9 of the style sheet; more series repeat them with dashes


@dataclass(frozen=True, slots=True)
class CellView:
    """A cell of the samples: its text, what of it is shown at first, and its classes."""

    text: str
    short: str
    kind: Kind
    is_null: bool

    @property
    def is_long(self) -> bool:
        return len(self.text) > len(self.short)


@dataclass(frozen=True, slots=True)
class GroupView:
    """A line of the table: the texts of its key, of its measures with their share of the largest, and links."""

    labels: tuple[str, ...]
    values: tuple[str, ...]
    raw: tuple[Any, ...]
    percents: tuple[float, ...]
    changes: tuple[str, ...]
    before: tuple[str, ...]
    link: str


@dataclass(frozen=True, slots=True)
class LineView:
    """A series of a chart: its label, how it is drawn, and the texts of the legend."""

    label: str
    colour: str
    path: str
    before_path: str
    total: str
    before_total: str
    link: str
    raw: tuple[float | None, ...]
    before_raw: tuple[float | None, ...] | None


@dataclass(frozen=True, slots=True)
class ChartView:
    lines: tuple[LineView, ...]
    axis: chart.Axis
    y_ticks: tuple[chart.Tick, ...]
    x_ticks: tuple[chart.Tick, ...]
    bins: tuple[str, ...]  # a text for each place on the x axis
    summary: str
    is_filled: bool


class ViewModels:
    """Turns the result of a query into what its template shows."""

    def __init__(self, bound: Bound) -> None:
        self.bound, self.query, self.links = bound, bound.query, Links(bound)
        self.zone = bound.clock.zone

    def cells(self, values: Sequence[Any], columns: Sequence[Named]) -> list[CellView]:
        return [self.cell(value, named.kind) for value, named in zip(values, columns, strict=True)]

    def cell(self, value: Any, kind: Kind) -> CellView:
        text = cell_text(value, kind, self.zone)
        short = text if len(text) <= SHORT_CELL else text[: SHORT_CELL - 1] + "…"
        return CellView(text, short, kind, value is None)

    def group_rows(self, result: TableResult) -> list[GroupView]:
        largest = [_largest([group.values[at] for group in result.groups]) for at in range(len(self.bound.measures))]
        return [self.group_view(group, largest) for group in result.groups]

    def group_view(self, group: Group, largest: Sequence[float] = ()) -> GroupView:
        labels = tuple(
            key_text(value, named.kind, self.zone)
            for value, named in zip(group.key or (), self.bound.groups, strict=False)
        )
        before = group.before or (None,) * len(group.values)
        return GroupView(
            labels=labels,
            values=self.measure_texts(group.values),
            raw=group.values,
            percents=tuple(_percent(value, most) for value, most in zip(group.values, largest, strict=False)),
            changes=tuple(change_text(now, then) for now, then in zip(group.values, before, strict=True)),
            before=self.measure_texts(before),
            link=self.links.group_link(group.key, View.SAMPLES) if group.key else "",
        )

    def measure_texts(self, values: Sequence[Any]) -> tuple[str, ...]:
        return tuple(
            measure_text(value, one, self.zone) for value, one in zip(values, self.bound.measures, strict=True)
        )

    def series_charts(self, result: SeriesResult) -> list[tuple[str, ChartView]]:
        """One chart a measure, since measures have units of their own."""
        charts = []
        for measure in self.bound.measures:
            lines = [line for line in result.lines if line.measure == measure]
            charts.append((str(measure), self.series_chart(result, measure, lines)))
        return charts

    def series_chart(self, result: SeriesResult, measure: BoundMeasure, lines: Sequence[Line]) -> ChartView:
        shape = self.query.shape if all(line.before is None for line in lines) else Shape.LINES
        connects = self.query.fill is Fill.CONNECT
        values = [line.values for line in lines]
        edges = chart.stacked(values) if shape is not Shape.LINES else values
        axis = chart.value_axis([*edges, *(line.before for line in lines if line.before)])
        shown = sum(line.group.key is not None for line in lines)
        drawn = chart.paths(values, shape, axis, connects=connects)
        length = result.bucket_us * result.bucket_count
        starts = [result.start_us + number * result.bucket_us for number in range(result.bucket_count)]
        return ChartView(
            lines=tuple(
                self.line_view(line, at, path, axis) for at, (line, path) in enumerate(zip(lines, drawn, strict=True))
            ),
            axis=axis,
            y_ticks=tuple(chart.Tick(axis.percent(value), self.axis_text(value, measure)) for value in axis.values),
            x_ticks=tuple(chart.time_ticks(result.start_us, length, self.zone)),
            bins=tuple(time_text(start, self.zone) for start in starts),
            summary=f"{measure} in {result.bucket_count} buckets of {grain_text(result.bucket_us)}"
            + (f", {shown} of {result.group_count} groups" if self.bound.groups else ""),
            is_filled=shape is not Shape.LINES,
        )

    def line_view(self, line: Line, at: int, path: str, axis: chart.Axis) -> LineView:
        is_rest = line.group.key is None
        before = line.before or ()
        return LineView(
            label=self.line_label(line.group),
            colour="rest" if is_rest else f"s{at % COLOURS}" + (" dashed" if at >= COLOURS else ""),
            path=path,
            before_path=chart.line_path(before, axis, connects=self.query.fill is Fill.CONNECT) if before else "",
            total="" if line.total is None else measure_text(line.total, line.measure, self.zone),
            before_total=_sum_text(line) if before else "",
            link=self.links.group_link(line.group.key, self.query.view) if line.group.key else "",
            raw=line.values,
            before_raw=line.before,
        )

    def line_label(self, group: Group) -> str:
        if group.key is None:
            return "other"
        named = zip(group.key, self.bound.groups, strict=False)
        return " · ".join(key_text(value, column.kind, self.zone) for value, column in named) or "all rows"

    def axis_text(self, value: float, measure: BoundMeasure) -> str:
        has_unit = measure.column is not None or measure.aggregate is Aggregate.SHARE
        return measure_text(value, measure, self.zone) if has_unit and value else compact_text(value)

    def distribution_chart(self, result: DistributionResult) -> ChartView:
        values = [line.values for line in result.lines]
        edges = chart.stacked(values)
        axis = chart.value_axis(edges)
        drawn = chart.paths(values, Shape.BARS, axis, connects=False)
        name, count = result.column.name, max(1, len(result.edges) - 1)
        texts = [quantity_text(edge, name) for edge in result.edges]
        places = chart.decade_ticks if self.query.scale is Scale.LOG else chart.number_ticks
        ticks = [chart.Tick(at, quantity_text(value, name)) for at, value in places(result.edges[0], result.edges[-1])]
        scale = " on a logarithmic scale" if self.query.scale is Scale.LOG else ""
        return ChartView(
            lines=tuple(
                self.line_view(line, at, path, axis)
                for at, (line, path) in enumerate(zip(result.lines, drawn, strict=True))
            ),
            axis=axis,
            y_ticks=tuple(chart.Tick(axis.percent(value), compact_text(value)) for value in axis.values),
            x_ticks=tuple(ticks),
            bins=tuple(f"{low} to {high}" for low, high in pairwise(texts)),
            summary=f"rows by {name} in {count} bins{scale}",
            is_filled=True,
        )

    def summary_facts(self, result: DistributionResult) -> list[tuple[str, str]]:
        """What stands above the bars: (name, value)."""
        summary, name = result.summary, result.column.name
        facts = [("min", summary.low), *((f"p{share * 100:g}", value) for share, value in summary.quantiles)]
        facts += [("max", summary.high), ("mean", summary.mean), ("std. deviation", summary.deviation)]
        return [(label, quantity_text(value, name)) for label, value in facts if value is not None]

    def chart_json(self, view: ChartView) -> Markup:
        """What the script reads out at the pointer, for a script element."""
        lines = [{"label": line.label, "values": line.raw, "before": line.before_raw} for line in view.lines]
        return json_element({"bins": view.bins, "lines": lines})


def json_element(value: object) -> Markup:
    """JSON that cannot end the script element that it stands in, or a line of it."""
    text = json.dumps(value, ensure_ascii=True, separators=(",", ":"), allow_nan=False)
    for mark in "<>&":
        text = text.replace(mark, f"\\u{ord(mark):04x}")
    return Markup(text)


def _largest(values: Iterable[Any]) -> float:
    return max((abs(float(value)) for value in values if value is not None), default=0.0)


def _percent(value: Any, largest: float) -> float:
    return round(100 * abs(float(value)) / largest, 1) if value is not None and 0 < largest < float("inf") else 0.0


def _sum_text(line: Line) -> str:
    if line.before is None or not line.measure.aggregate.is_additive:
        return ""
    return number_text(sum(filter(None, line.before)))
