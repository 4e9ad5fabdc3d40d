"""The spans of a run as columns for the timeline page, and as a trace that Perfetto opens."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tracewise.model.entities import Rank, Run, Span
from tracewise.model.ids import CompileId
from tracewise.read.json_text import to_json
from tracewise.report.html import visible
from tracewise.report.links import Links


def timeline_columns(run: Run, links: Links) -> dict[str, Any]:
    """Names once and a row of numbers a span: lane, name, depth, start, duration (-1 if open), in microseconds."""
    names: dict[str, int] = {}
    lanes: list[dict[str, Any]] = []
    columns: dict[str, list[int]] = {"lane": [], "name": [], "depth": [], "start": [], "dur": []}
    origin = origin_us(run)
    for rank in run.ranks:
        lane_of: dict[CompileId, int] = {}
        depths: dict[int, int] = {}
        for span in rank.spans:
            lane = lane_of.get(span.id)
            if lane is None:
                lane = lane_of[span.id] = len(lanes)
                unit = rank.compilations.get(span.id)
                lanes.append(
                    {
                        "rank": rank.label,
                        "id": str(span.id),
                        "function": visible(unit.function) if unit else "",
                        "href": links.compilation(unit) if unit else "",
                    }
                )
            depth = depths.get(id(span.parent), -1) + 1 if span.parent else 0
            depths[id(span)] = depth
            columns["lane"].append(lane)
            columns["name"].append(names.setdefault(span.name, len(names)))
            columns["depth"].append(depth)
            columns["start"].append(round(span.start_us - origin))
            columns["dur"].append(-1 if span.dur_us is None else round(span.dur_us))
    return {"names": [visible(name) for name in names], "lanes": lanes, **columns}


def origin_us(run: Run) -> float:
    """When the first span begins."""
    return min((span.start_us for rank in run.ranks for span in rank.spans), default=float(run.started_us))


def perfetto_trace(run: Run) -> Iterator[bytes]:
    """The lines of a Chrome trace: a process a rank, a thread a compilation, complete events."""
    origin = origin_us(run)
    end_us = max((span.start_us + (span.dur_us or 0.0) for rank in run.ranks for span in rank.spans), default=origin)
    yield b'{"displayTimeUnit": "ms", "baseTimeNanoseconds": %d, "traceEvents": [\n' % round(origin * 1000)
    yield b",\n".join(to_json(event) for event in _metadata(run))
    for process, rank in enumerate(run.ranks):
        lanes: dict[CompileId, int] = {}
        for span in rank.spans:
            thread = lanes.setdefault(span.id, len(lanes))
            yield b",\n" + to_json(_event(span, process, thread, origin, end_us))
    yield b"\n]}\n"


def _metadata(run: Run) -> Iterator[dict[str, Any]]:
    for process, rank in enumerate(run.ranks):
        name = f"rank {rank.number}" if rank.number is not None else f"process {rank.label}"
        yield {"ph": "M", "pid": process, "tid": 0, "name": "process_name", "args": {"name": name}}
        yield {"ph": "M", "pid": process, "tid": 0, "name": "process_sort_index", "args": {"sort_index": process}}
        for thread, id in enumerate(_lanes(rank)):
            unit = rank.compilations.get(id)
            text = f"{id} {unit.function if unit else ''}".strip()
            yield {"ph": "M", "pid": process, "tid": thread, "name": "thread_name", "args": {"name": text}}


def _lanes(rank: Rank) -> list[CompileId]:
    return list(dict.fromkeys(span.id for span in rank.spans))


def _event(span: Span, process: int, thread: int, origin: float, end_us: float) -> dict[str, Any]:
    dur = span.dur_us if span.dur_us is not None else max(end_us - span.start_us, 0.0)
    args = dict(span.args or {})
    if span.dur_us is None:
        args["never_ended"] = True
    start = round(span.start_us - origin, 3)
    return {
        "ph": "X",
        "pid": process,
        "tid": thread,
        "name": span.name,
        "ts": start,
        "dur": round(dur, 3),
        "args": args,
    }
