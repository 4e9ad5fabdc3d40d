"""The pages: templates with the controls of a query, its result, and what went wrong."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import tzinfo
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from tracewise.explore.bind import Bound, Named
from tracewise.explore.engine import Ran
from tracewise.explore.functions import FUNCTIONS
from tracewise.explore.links import Links, table_link
from tracewise.explore.query import (
    COMPARISONS,
    DEFAULT_LIMIT,
    MAX_LIMIT,
    Aggregate,
    Fill,
    Filter,
    Measure,
    Op,
    Scale,
    Shape,
    View,
)
from tracewise.explore.results import DistributionResult, Result, SamplesResult, SeriesResult, TableResult
from tracewise.explore.text import cell_text, number_text, seconds_text
from tracewise.explore.timeparse import time_text
from tracewise.explore.url import Issue, filter_text
from tracewise.explore.view_models import ViewModels, json_element
from tracewise.store.table import Kind, Table, TimeUnit

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
        self.links, self.models = Links(bound), ViewModels(bound)

    def html(self) -> str:
        return _environment.get_template("page.html").render(page=self)

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
