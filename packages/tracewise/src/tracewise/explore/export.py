"""Results for machines: rows with a header, and JSON."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Sequence
from typing import Any

from tracewise.explore.bind import Bound
from tracewise.explore.engine import Ran
from tracewise.explore.results import (
    DistributionResult,
    Group,
    Result,
    SamplesResult,
    SeriesResult,
    TableResult,
)
from tracewise.explore.url import Issue

VERSION = 1


def result_json(
    bound: Bound, result: Result | None, failure: str, issues: tuple[Issue, ...], ran: Sequence[Ran]
) -> dict[str, Any]:
    """Version, query, issues and statements, then ``columns`` and ``rows`` or the ``error``. Times are microseconds."""
    head = {
        "version": VERSION,
        "table": bound.table.name,
        "view": bound.query.view.value,
        "issues": [{"parameter": one.parameter, "value": one.value, "message": one.message} for one in issues],
        "statements": [{"sql": one.text, "values": one.params, "seconds": round(one.seconds, 6)} for one in ran],
    }
    if result is None:
        return {**head, "error": failure}
    columns, rows = result_rows(bound, result)
    return {**head, "columns": columns, "rows": [[_json_value(cell) for cell in row] for row in rows]}


def result_csv(bound: Bound, result: Result) -> str:
    """A header and rows; times are microseconds since the epoch, as in the JSON."""
    columns, rows = result_rows(bound, result)
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(rows)
    return text.getvalue()


def result_rows(bound: Bound, result: Result) -> tuple[list[str], list[list[Any]]]:
    """Names of columns and rows of values."""
    groups, measures = [group.name for group in bound.groups], [str(measure) for measure in bound.measures]
    match result:
        case SamplesResult(columns=columns, samples=samples):
            return [named.name for named in columns], [list(sample.cells) for sample in samples]
        case TableResult():
            shown = [*result.groups, *([result.other] if result.other else [])]
            header = [*groups, *measures]
            if bound.compare_us:
                header += [f"{name} before" for name in measures]
            return header, [_group_row(bound, group) for group in shown]
        case SeriesResult():
            starts = [result.start_us + number * result.bucket_us for number in range(result.bucket_count)]
            return [*groups, "measure", "time", "value"], [
                [*_key(bound, line.group), str(line.measure), start, value]
                for line in result.lines
                for start, value in zip(starts, line.values, strict=True)
            ]
        case DistributionResult(edges=edges):
            return [*groups, "from", "to", "count"], [
                [*_key(bound, line.group), low, high, value]
                for line in result.lines
                for low, high, value in zip(edges, edges[1:], line.values, strict=False)
            ]


def _group_row(bound: Bound, group: Group) -> list[Any]:
    before = (group.before or (None,) * len(group.values)) if bound.compare_us else ()
    return [*_key(bound, group), *group.values, *before]


def _key(bound: Bound, group: Group) -> list[Any]:
    if group.key is None:
        return ["other"] + [""] * (len(bound.groups) - 1) if bound.groups else []
    return list(group.key)


def _json_value(value: Any) -> Any:
    """JSON has neither infinity nor not-a-number, and its readers no integers over 53 bits."""
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, int):
        return value if abs(value) < 2**53 else str(value)
    number = float(value)
    return number if math.isfinite(number) else str(number)
