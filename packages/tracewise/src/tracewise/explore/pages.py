"""The pages: what the templates show of a query and its result, and the links that lead to the next query."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import tzinfo
from itertools import pairwise
from typing import Any
from urllib.parse import quote

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from tracewise.explore import chart
from tracewise.explore.bind import Bound, BoundMeasure, Named
from tracewise.explore.engine import Ran
from tracewise.explore.functions import FUNCTIONS
from tracewise.explore.query import (
    COMPARISONS,
    DEFAULT_LIMIT,
    MAX_LIMIT,
    Aggregate,
    Fill,
    Filter,
    Measure,
    Op,
    Order,
    Query,
    Scale,
    Shape,
    View,
)
from tracewise.explore.results import (
    DistributionResult,
    Group,
    Line,
    Result,
    SamplesResult,
    SeriesResult,
    TableResult,
)
from tracewise.explore.text import (
    cell_text,
    change_text,
    compact_text,
    equality,
    grain_text,
    key_text,
    measure_text,
    number_text,
    quantity_text,
    seconds_text,
)
from tracewise.explore.timeparse import time_text
from tracewise.explore.url import Issue, filter_text, query_string
from tracewise.store.table import Kind, Table, TimeUnit

SHORT_CELL = 100
COLOURS = 10  # classes s0 to s9 of the style sheet; more series repeat them with dashes
VIEW_LABELS = {
    View.SAMPLES: "Samples",
    View.TABLE: "Table",
    View.SERIES: "Time series",
    View.DISTRIBUTION: "Distribution",
}

_environment = Environment(
    loader=PackageLoader("tracewise.explore"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)


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


class Page:
    """What the template of a view knows. ``result`` is None where there is none; then ``failure`` says why."""

    def __init__(
        self,
        tables: Iterable[Table],
        bound: Bound,
        issues: Sequence[Issue],
        result: Result | None,
        failure: str,
        ran: Sequence[Ran],
    ) -> None:
        self.tables = tuple(tables)
        self.bound, self.query, self.table = bound, bound.query, bound.table
        self.issues = tuple(issues)
        self.result, self.failure, self.ran = result, failure, tuple(ran)
        self.zone: tzinfo = bound.clock.zone

    def html(self) -> str:
        return _environment.get_template("page.html").render(page=self)

    # Links

    def link(self, **changes: Any) -> str:
        """The address of the query with these changes; a page of samples further down is left."""
        return link_to(self.table.name, replace(self.query, **{"after": "", **changes}))

    def view_link(self, view: View) -> str:
        return self.link(view=view)

    def order_link(self, key: str) -> str:
        """Sort by ``key``, the largest first; a second time turns the direction."""
        order = self.query.order
        return self.link(order=Order(key, not order.descending if order and order.key == key else True))

    def order_mark(self, key: str) -> str:
        order = self.bound.order
        if order is None and self.query.view is View.TABLE and key == str(self.bound.measures[0]):
            return "descending"
        if order is None or order.key != key:
            return "none"
        return "descending" if order.descending else "ascending"

    def group_link(self, key: Sequence[Any], view: View) -> str:
        """The rows of one group."""
        filters = [equality(group, value, self.zone) for group, value in zip(self.bound.groups, key, strict=True)]
        kept = [one for one in self.query.filters if one not in filters]
        return self.link(view=view, filters=(*kept, *filters))

    def without_filter(self, condition: Filter) -> str:
        return self.link(filters=tuple(one for one in self.query.filters if one is not condition))

    def grouped_by(self, name: str) -> str:
        return self.link(groups=(*self.query.groups, name), view=View.SERIES if self.bound.time else View.TABLE)

    def row_link(self, row_key: int) -> str:
        return f"{table_link(self.table.name)}/row/{row_key}"

    def export_link(self, extension: str) -> str:
        return f"{table_link(self.table.name)}/rows.{extension}?{query_string(self.query)}"

    # Controls

    def issues_of(self, *parameters: str) -> list[Issue]:
        return [issue for issue in self.issues if issue.parameter in parameters]

    def filter_text(self, condition: Filter) -> str:
        return filter_text(condition)

    @property
    def broken_filters(self) -> list[Issue]:
        """Filters that could not be read, as typed; those that do not fit the table are in the query."""
        known = {filter_text(condition) for condition in self.query.filters}
        return [issue for issue in self.issues_of("f") if issue.value not in known]

    @property
    def column_names(self) -> list[str]:
        return [named.name for named in self.bound.names]

    @property
    def numeric_names(self) -> list[str]:
        return [named.name for named in self.bound.names if named.kind is Kind.NUMBER]

    @property
    def time_names(self) -> list[str]:
        return [column.name for column in self.table.of_kind(Kind.TIME, Kind.NUMBER)]

    @property
    def time_name(self) -> str:
        return self.bound.time.column.name if self.bound.time else ""

    @property
    def ungrouped(self) -> list[str]:
        """Columns that a chart may be split by next."""
        taken = {*self.query.groups, self.time_name}
        return [named.name for named in self.bound.names if named.name not in taken and named.kind is Kind.TEXT][:6]

    @property
    def measure_suggestions(self) -> list[str]:
        numbers = [aggregate for aggregate in Aggregate if aggregate.takes_column]
        plain = [str(Measure(aggregate)) for aggregate in Aggregate if not aggregate.takes_column]
        return plain + [str(Measure(aggregate, name)) for name in self.numeric_names for aggregate in numbers]

    @property
    def data_json(self) -> Markup:
        """What the scripts know of the table, for a script element."""
        columns = {named.name: named.kind.value for named in self.bound.names}
        return json_element({"table": table_link(self.table.name), "columns": columns, "ops": _OPS})

    @property
    def span_text(self) -> str:
        period = self.bound.period
        if period is None:
            return ""
        return f"{time_text(period.start_us, self.zone)} to {time_text(period.end_us, self.zone)}"

    @property
    def compared_text(self) -> str:
        if not self.bound.compare_us or not self.bound.period:
            return ""
        period = self.bound.period.moved(-self.bound.compare_us)
        return f"{time_text(period.start_us, self.zone)} to {time_text(period.end_us, self.zone)}"

    @property
    def announcement(self) -> str:
        """One sentence for those who do not see the page change."""
        match self.result:
            case None:
                return self.failure
            case SamplesResult(samples=rows):
                return f"{len(rows)} rows"
            case TableResult(groups=groups, group_count=count):
                return f"{len(groups)} of {count} groups"
            case SeriesResult(lines=lines) | DistributionResult(lines=lines):
                return f"{len(lines)} series"

    @property
    def seconds_text(self) -> str:
        return seconds_text(sum(one.seconds for one in self.ran))

    # Views

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
            link=self.group_link(group.key, View.SAMPLES) if group.key else "",
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
            link=self.group_link(line.group.key, self.query.view) if line.group.key else "",
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


def index_html(tables: Iterable[Table], zone: tzinfo) -> str:
    """The list of tables."""
    return _environment.get_template("index.html").render(tables=list(tables), zone=zone)


def row_html(table: Table, row_key: int, cells: Sequence[tuple[Named, Any]], zone: tzinfo, payload: str | None) -> str:
    """One row with all its columns in full."""
    shown = [(named, cell_text(value, named.kind, zone)) for named, value in cells]
    return _environment.get_template("row.html").render(table=table, row_key=row_key, cells=shown, payload=payload)


def sql_html(
    tables: Iterable[Table], text: str, columns: Sequence[str], rows: Sequence[Sequence[Any]], failure: str
) -> str:
    """The box for raw SQL with the rows of what was typed."""
    return _environment.get_template("sql.html").render(
        tables=list(tables), text=text, columns=columns, rows=rows, failure=failure
    )


def message_html(title: str, message: str) -> str:
    return _environment.get_template("message.html").render(title=title, message=message)


def table_link(name: str) -> str:
    return f"/t/{quote(name, safe='')}"


def link_to(table: str, query: Query) -> str:
    return f"{table_link(table)}?{query_string(query)}"


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


_OPS = [{"name": op.value, "label": op.label, "values": op.takes_values} for op in Op]
_environment.globals |= {
    "views": VIEW_LABELS,
    "View": View,
    "fills": Fill,
    "shapes": Shape,
    "scales": Scale,
    "units": [unit for unit in TimeUnit if unit is not TimeUnit.TIMESTAMP],
    "grains": ["auto", "fine", "1 ms", "10 ms", "100 ms", "1 s", "10 s", "1 min", "10 min", "1 h", "1 d", "30 d"],
    "comparisons": COMPARISONS,
    "functions": sorted(["if", *FUNCTIONS]),
    "default_limit": DEFAULT_LIMIT,
    "max_limit": MAX_LIMIT,
    "table_link": table_link,
    "number_text": number_text,
    "time_text": time_text,
}
