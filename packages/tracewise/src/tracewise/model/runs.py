"""Which files make one run, and the reading of a run.

A run is a set of trace logs of one folder whose processes differ, whose times overlap or lie at most 10 s apart, and
of which no two are of one rank.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from tracewise.model.build import FileBuilder
from tracewise.model.entities import LogFile, Run
from tracewise.read.archive import InputError
from tracewise.read.clock import find_clock
from tracewise.read.grammar import HEAD, Head, parse_head
from tracewise.read.health import Health
from tracewise.read.log import LogReader
from tracewise.read.source import SourceFile, Sources

GAP_US = 10_000_000
ENDS_BYTES = 1 << 20
RANK_IN_RECORD = b'"rank": '
Progress = Callable[[int, int], None]


@dataclass(slots=True)
class FileSpan:
    """When a file begins and ends, and whose it is, by its first and last megabyte."""

    source: SourceFile
    pids: frozenset[int]
    rank: int | None
    started_us: int
    ended_us: int


def file_span(source: SourceFile) -> FileSpan:
    """Looks at the two ends of a log."""
    with source.path.open("rb") as log:
        clock = find_clock(log, source.path)
        first = log.read(ENDS_BYTES)
        log.seek(max(source.size - ENDS_BYTES, 0))
        last = log.read(ENDS_BYTES)
    heads: list[Head] = []
    begin = HEAD.search(first)
    if begin is not None:
        heads.append(parse_head(begin))
    end = last.rfind(b"\nV")
    while end >= 0:
        match = HEAD.match(last, end + 1)
        if match is not None:
            heads.append(parse_head(match))
            break
        end = last.rfind(b"\nV", 0, end)
    times = [clock.utc_us(head)[0] for head in heads] or [int(source.path.stat().st_mtime * 1e6)]
    rank = source.rank
    if rank is None and (at := last.find(RANK_IN_RECORD)) >= 0:
        digits = last[at + len(RANK_IN_RECORD) : at + len(RANK_IN_RECORD) + 10].split(b",")[0].split(b"}")[0]
        rank = int(digits) if digits.isdigit() else None
    return FileSpan(source, frozenset(head.pid for head in heads), rank, min(times), max(times))


def group_runs(sources: Iterable[SourceFile]) -> list[list[FileSpan]]:
    """The files of each run, oldest run first."""
    runs: list[list[FileSpan]] = []
    spans = sorted((file_span(source) for source in sources), key=lambda span: (span.source.folder, span.started_us))
    for span in spans:
        current = runs[-1] if runs else None
        if current is not None and _belongs(span, current):
            current.append(span)
        else:
            runs.append([span])
    return sorted(runs, key=lambda run: min(span.started_us for span in run))


def _belongs(span: FileSpan, run: list[FileSpan]) -> bool:
    if span.source.folder != run[0].source.folder:
        return False
    if span.started_us > max(other.ended_us for other in run) + GAP_US:
        return False
    if span.rank is not None and any(other.rank == span.rank for other in run):
        # A process that compiles before it knows its rank may leave its rank in a file without one in the name.
        return False
    return not any(span.pids & other.pids for other in run)


def load_run(
    spans: list[FileSpan], number: int = 0, health: Health | None = None, progress: Progress | None = None
) -> Run:
    """Reads the files of one run. ``health`` is what was noted while the files were found."""
    run = Run(number, spans[0].source.folder if spans else "")
    if health is not None:
        run.health.add(health)
    total = sum(span.source.size for span in spans)
    done = 0
    for file_number, span in enumerate(spans):
        source = span.source
        file = LogFile(file_number, str(source.path), source.name, source.rank, source.size)
        run.files.append(file)
        reader = LogReader(source.path, file.health, name=Path(source.name).name)
        builder = FileBuilder(run, file)
        for count, record in enumerate(reader):
            builder.add(record)
            if progress is not None and count % 2000 == 0:
                progress(done + record.offset, total)
        builder.finish()
        done += source.size
        if reader.clock is not None:
            file.offset_us = reader.clock.offset_us
        run.health.add(file.health)
    _settle(run)
    return run


def find_runs(sources: Sources) -> list[list[FileSpan]]:
    """The runs among the sources, oldest first. InputError if there is no trace log at all."""
    logs = sources.of_kind("trace")
    if not logs:
        kinds = ", ".join(sorted({file.kind for file in sources.files})) or "nothing"
        raise InputError(
            f"no trace log among the {len(sources.files)} files given (found: {kinds}); "
            "run the program with TORCH_TRACE=DIR and give that folder"
        )
    return group_runs(logs)


def _settle(run: Run) -> None:
    """Order and times that need all files."""
    run.ranks.sort(key=lambda rank: (rank.number is not None, rank.number or 0))
    run.started_us = min((file.started_us for file in run.files if file.started_us), default=0)
    run.ended_us = max((file.ended_us for file in run.files), default=0)
    run.offset_us = run.files[0].offset_us if run.files else 0
    for rank in run.ranks:
        rank.spans.sort(key=lambda span: span.start_us)
        for unit in rank.compilations.values():
            if unit.id.compile:
                unit.first_of_frame = rank.compilations.get(unit.id._replace(compile=0))
