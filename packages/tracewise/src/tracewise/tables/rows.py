"""Rows of the tables of ``schema``, as iterators: nothing is collected on the way."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tracewise.find.problems import find_problems
from tracewise.model.entities import Compilation, Record, Run, innermost_user_frame
from tracewise.model.ids import id_of_envelope
from tracewise.read.grammar import parse_json
from tracewise.read.health import Health
from tracewise.read.json_text import to_json
from tracewise.read.log import LogReader
from tracewise.tables.schema import TABLES

Row = tuple[Any, ...]


def rows(run: Run, table: str) -> Iterator[Row]:
    """The rows of one table of a run. ValueError for a name that is no table."""
    if table not in ROWS:
        raise ValueError(f"no table {table!r}; there are {', '.join(TABLES)}")
    return ROWS[table](run)


def event_rows(run: Run) -> Iterator[Row]:
    """Reads the logs again, because the model does not keep what the timeline is made from."""
    ranks = {(file, pid): rank.number for rank in run.ranks for file in rank.files for pid in rank.pids}
    for file in run.files:
        for log in LogReader(Path(file.path), Health(), name=file.name):
            if log.kind == "str":
                continue
            own_rank = log.envelope.get("rank")
            rank = own_rank if type(own_rank) is int else ranks.get((file.number, log.pid), file.rank)
            id, _ = id_of_envelope(log.envelope)
            name, phase = _name_and_phase(log.kind, log.value, log.payload)
            yield (
                log.time_us, run.number, rank, None, file.name, log.line, log.kind, name, str(id), str(id.compilation),
                phase, log.pid, len(log.payload or b""), log.md5 or None, f"{log.path}:{log.path_line}",
                " ".join(log.flags), log.offset,
            )  # fmt: skip


def _name_and_phase(kind: str, value: Any, payload: bytes | None) -> tuple[str | None, str | None]:
    if kind == "chromium_event" and payload:
        try:
            value, _ = parse_json(payload)
        except ValueError:
            return None, None
    if not isinstance(value, dict):
        return None, None
    name, phase = value.get("name"), value.get("ph")
    return (name if isinstance(name, str) else None), (phase if isinstance(phase, str) else None)


def span_rows(run: Run) -> Iterator[Row]:
    for rank in run.ranks:
        for span in rank.spans:
            unit = rank.compilations.get(span.id)
            yield (
                int(span.start_us), run.number, rank.number, None, _file(run, unit), None, span.name, str(span.id),
                unit.function if unit else None, span.dur_us, span.self_us, span.depth,
                span.parent.name if span.parent else None, _json(span.args),
            )  # fmt: skip


def compilation_rows(run: Run) -> Iterator[Row]:
    for unit in run.compilations:
        metrics = unit.metrics
        site = unit.site
        states = [event.state for event in unit.caches]
        yield (
            unit.started_us, run.number, unit.rank, None, _file(run, unit), _line(unit.metrics_record), str(unit.id),
            unit.function, site.place if site else None, unit.status, len(unit.attempts),
            sum(b.kind == "dynamo_graph_break_reason" for b in unit.breaks), unit.duration_us,
            unit.recompile_reasons[0] if unit.recompile_reasons else _text(metrics.get("recompile_reason")),
            _text(metrics.get("fail_type")), _text(metrics.get("fail_reason")),
            _number(metrics.get("aot_autograd_cumulative_compile_time_us")),
            _number(metrics.get("inductor_cumulative_compile_time_us")),
            _number(metrics.get("inductor_code_gen_cumulative_compile_time_us")),
            _integer(metrics.get("graph_op_count")), _integer(metrics.get("graph_node_count")),
            _integer(metrics.get("guard_count")), states.count("hit"), states.count("miss"), _json(metrics),
        )  # fmt: skip


def problem_rows(run: Run) -> Iterator[Row]:
    for problem in find_problems(run):
        place = problem.site.place if problem.site else None
        for occurrence in problem.occurrences:
            unit = run.by_key.get((occurrence.process, occurrence.id))
            record = occurrence.record
            time_us = record.time_us if record else unit.started_us if unit else run.started_us
            yield (
                time_us, run.number, unit.rank if unit else None, None, _file(run, unit), _line(record),
                str(occurrence.id), problem.id, problem.kind, problem.severity, problem.headline, place,
                problem.cost_us,
            )  # fmt: skip


def cache_rows(run: Run) -> Iterator[Row]:
    for unit in run.compilations:
        for event in unit.caches:
            yield (*_common(run, unit, event.record), event.cache, event.state, event.key, event.reason, event.saved_us)


def guard_rows(run: Run) -> Iterator[Row]:
    for unit in [*run.compilations, *(rank.outside for rank in run.ranks)]:
        for guard in unit.guards:
            frame = innermost_user_frame(guard.stack)
            place = frame.place if frame else None
            yield (*_common(run, unit, guard.record), guard.kind, guard.expression, guard.value, guard.reason, place)


def collective_rows(run: Run) -> Iterator[Row]:
    for unit in run.compilations:
        for record, schedule in unit.collectives:
            for position, op in enumerate(schedule):
                yield (*_common(run, unit, record), position, op)


ROWS: dict[str, Callable[[Run], Iterator[Row]]] = {
    "events": event_rows,
    "spans": span_rows,
    "compilations": compilation_rows,
    "problems": problem_rows,
    "caches": cache_rows,
    "guards": guard_rows,
    "collectives": collective_rows,
}


def _common(run: Run, unit: Compilation, record: Record) -> Row:
    return (record.time_us, run.number, unit.rank, None, run.files[record.file].name, record.line, str(unit.id))


def _file(run: Run, unit: Compilation | None) -> str | None:
    return run.files[unit.file].name if unit and unit.file < len(run.files) else None


def _line(record: Record | None) -> int | None:
    return record.line if record else None


def _json(value: Any) -> str | None:
    return to_json(value).decode() if value else None


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _integer(value: Any) -> int | None:
    return value if type(value) is int else None
