"""Trace logs as batches of rows: each log read by itself, several at a time, in processes of their own.

A process hands its rows over in Arrow files, so that neither side holds more than a batch a table.
"""

from __future__ import annotations

import multiprocessing
import os
import threading
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa

from tracewise.model.runs import FileSpan, load_run
from tracewise.read.health import Health
from tracewise.store.arrow import BATCH_ROWS, arrow_schema, batches
from tracewise.tables.rows import rows
from tracewise.tables.schema import TABLES

# Logs of at most this size in all are read in this process: starting another costs more.
SMALL_BYTES = 8 << 20
# Packs a process, so that no process waits long for the last one, and few files are handed over.
PACKS_A_PROCESS = 8


def end_with_parent() -> None:
    """Let this worker end when the process that has started it is killed: it would wait for its next pack for ever."""
    threading.Thread(target=_leave_after_parent, daemon=True).start()


def _leave_after_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


@dataclass(frozen=True, slots=True)
class Batch:
    """Rows of one table of one run."""

    table: str
    run: int
    rows: pa.Table


@dataclass(frozen=True, slots=True)
class Log:
    """One log of a run."""

    span: FileSpan
    run: int


def logs_of(runs: Sequence[Sequence[FileSpan]]) -> list[Log]:
    """The logs of all runs, by run and rank, so that rows of a rank lie together."""
    return [
        Log(span, number)
        for number, spans in enumerate(runs)
        for span in sorted(spans, key=lambda span: (span.rank is not None, span.rank or 0, span.source.name))
    ]


def read_batches(
    logs: Sequence[Log], health: Health, tables: Iterable[str] = TABLES, processes: int | None = None
) -> Iterator[Batch]:
    """The rows of ``tables`` of all logs, in order of the logs; ``health`` takes in what was odd in them."""
    wanted = tuple(tables)
    processes = min(processes or os.cpu_count() or 1, len(logs))
    if processes <= 1 or sum(log.span.source.size for log in logs) <= SMALL_BYTES:
        yield from _batches_of(logs, wanted, health)
        return
    packs = _packs(logs, processes * PACKS_A_PROCESS)
    # Spawned, not forked: the parent has threads of a database and of a server.
    context = multiprocessing.get_context("spawn")
    with (
        TemporaryDirectory(prefix="tracewise-rows-") as folder,
        ProcessPoolExecutor(processes, mp_context=context, initializer=end_with_parent) as pool,
    ):
        jobs = [(pack, wanted, Path(folder) / str(number)) for number, pack in enumerate(packs)]
        for written, oddities in pool.map(_write_pack, *zip(*jobs, strict=True)):
            health.add(oddities)
            for table, run, path in written:
                with pa.memory_map(str(path)) as file, pa.ipc.open_stream(file) as stream:
                    for batch in stream:
                        yield Batch(table, run, pa.Table.from_batches([batch]))
                path.unlink()


def _packs(logs: Sequence[Log], count: int) -> list[list[Log]]:
    """The logs in at most ``count`` packs of about equal size, in order."""
    total = sum(log.span.source.size for log in logs)
    packs: list[list[Log]] = [[]]
    filled = 0
    for log in logs:
        if packs[-1] and filled >= len(packs) * total / count:
            packs.append([])
        packs[-1].append(log)
        filled += log.span.source.size
    return packs


def _batches_of(logs: Iterable[Log], tables: Sequence[str], health: Health) -> Iterator[Batch]:
    """One log after another; the rows of small logs share a batch."""
    waiting: dict[tuple[str, int], list[pa.Table]] = {}
    for log in logs:
        run = load_run([log.span], log.run)
        health.add(run.health)
        for table in tables:
            held = waiting.setdefault((table, log.run), [])
            for batch in batches(TABLES[table], rows(run, table)):
                held.append(batch)
                if sum(part.num_rows for part in held) >= BATCH_ROWS:
                    yield Batch(table, log.run, pa.concat_tables(held))
                    held.clear()
    for (table, number), held in waiting.items():
        if held:
            yield Batch(table, number, pa.concat_tables(held))


def _write_pack(logs: Sequence[Log], tables: Sequence[str], folder: Path) -> tuple[list[tuple[str, int, Path]], Health]:
    """The batches of a pack as Arrow streams, one a table and run: (table, run, path); and what was odd."""
    folder.mkdir()
    health = Health()
    writers: dict[tuple[str, int], pa.ipc.RecordBatchStreamWriter] = {}
    paths: list[tuple[str, int, Path]] = []
    for batch in _batches_of(logs, tables, health):
        key = (batch.table, batch.run)
        if key not in writers:
            path = folder / f"{batch.table}-{batch.run}.arrows"
            writers[key] = pa.ipc.new_stream(str(path), arrow_schema(TABLES[batch.table]))
            paths.append((*key, path))
        writers[key].write_table(batch.rows.combine_chunks())
    for writer in writers.values():
        writer.close()
    return paths, health
