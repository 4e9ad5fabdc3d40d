"""How long do the explorer's queries take on many rows, and how long until many logs can be explored?

python benchmarks/bench_explorer.py                   ten million rows, and the logs of 256 ranks
python benchmarks/bench_explorer.py --ranks 4096      needs 2 GB of disk and some minutes
python benchmarks/bench_explorer.py --rows 100000 --ranks 8    to see that it works

CPU seconds are of all threads and processes together. Machines are shared, so they are what to compare; the wall time
is what a user waits on this one.
"""

from __future__ import annotations

import argparse
import lzma
import os
import re
import resource
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC
from pathlib import Path

import duckdb

from tracewise.explore import statements
from tracewise.explore.answers.compute import compute
from tracewise.explore.bind import bind, choose_time
from tracewise.explore.engine import Engine
from tracewise.explore.timeparse import Clock
from tracewise.explore.url import parse_query
from tracewise.read.source import open_sources
from tracewise.store.database import Database
from tracewise.store.opening import fill

LOG = Path(__file__).resolve().parents[1] / "packages/tracewise/tests/golden/ranks-none-1.log.xz"
# Six columns, a thousand names, an hour.
ROWS_SQL = """COPY (SELECT TIMESTAMP '2026-11-22 03:00:00' + to_microseconds(i * 3600000000 // {rows}) AS time,
    (i * 7919) % 16 AS rank, 'kind_' || (hash(i) % 30) AS kind, 'name_' || (hash(i * 3) % 1000) AS name,
    (hash(i * 5) % 100000) / 7.0 AS dur_us, i AS line FROM range({rows}) numbers(i)) TO '{path}' (FORMAT parquet)"""
QUERIES = [
    ("first page of samples", "view=samples", "wall 50 ms"),
    ("samples, filtered", "view=samples&f=kind:eq:kind_3", "wall 50 ms"),
    ("filter + bucket + group", "view=series&f=kind:eq:kind_3&g=rank", "wall 200 ms"),
    ("filter + bucket + group by 1,000 names", "view=series&f=kind:eq:kind_3&g=name", "wall 200 ms"),
    ("bucket + group of all rows", "view=series&g=rank", ""),
    ("p99 by 1,000 groups", "view=table&g=name&m=p99(dur_us)&n=1000&other=0", "0.8 s of CPU"),
    ("compared with the half hour before", "view=table&g=kind&from=50%25&cmp=previous", ""),
    ("distribution", "view=distribution&x=dur_us", ""),
]


@dataclass(frozen=True, slots=True)
class Cost:
    wall_s: float
    cpu_s: float


def cpu_s() -> float:
    """Of this process and of the children that ended."""
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def cost(action: Callable[[], object]) -> Cost:
    started, before = time.perf_counter(), cpu_s()
    action()
    return Cost(time.perf_counter() - started, cpu_s() - before)


def peak_mb() -> tuple[float, float]:
    """The most memory that this process had, and the largest of its children."""
    return tuple(resource.getrusage(who).ru_maxrss / 1024 for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))


def queries(folder: Path, rows: int, rounds: int) -> None:
    """Each query ``rounds`` times after a first one; medians."""
    path = folder / "rows.parquet"
    duckdb.execute(ROWS_SQL.format(rows=rows, path=path))
    with open_sources([str(path)]) as sources, Database() as database:
        opened = cost(lambda: fill(database, sources))
        database.lock()
        engine, table = Engine(database, timeout_s=120), database.tables["rows"]
        print(f"{rows:,} rows, {path.stat().st_size / 1e6:.0f} MB of Parquet: opened in {opened.wall_s:.2f} s\n")
        print("| query | wall | CPU | target |\n| --- | ---: | ---: | --- |")
        for name, text, target in QUERIES:

            def run(text: str = text) -> None:
                query, issues = parse_query(text)
                assert not issues, issues
                column, _ = choose_time(query, table)
                assert column is not None, "the rows have times"
                with engine.session() as session:
                    first, last = session.fetch(statements.extent(table, column))[0]
                    bound = bind(query, table, column, Clock(last, first, last, UTC))
                    assert not bound.issues, bound.issues
                    compute(bound, session)

            run()
            found = [cost(run) for _ in range(rounds)]
            wall, cpu = (
                statistics.median(values) for values in zip(*((c.wall_s, c.cpu_s) for c in found), strict=True)
            )
            print(f"| {name} | {wall * 1e3:.0f} ms | {cpu * 1e3:.0f} ms | {target} |", flush=True)
    print(f"\nmost memory: {peak_mb()[0]:.0f} MB\n")


def logs(folder: Path, ranks: int) -> None:
    """A log of half a megabyte for each rank, each a process of its own, until their tables can be asked."""
    text = lzma.decompress(LOG.read_bytes())
    for rank in range(ranks):
        own = re.sub(rb'"rank": 1\b', b'"rank": %d' % rank, text)
        own = re.sub(rb"^(V\d{4} \S+ )\d+", b"\\g<1>%d" % (10_000 + rank), own, flags=re.MULTILINE)
        (folder / f"dedicated_log_torch_trace_rank_{rank}_abcdefgh.log").write_bytes(own)
    with open_sources([str(folder)]) as sources, Database() as database:
        found = cost(lambda: fill(database, sources))
        counts = {name: table.rows for name, table in database.tables.items() if table.rows}
        with database.reading() as connection:
            (seen,) = connection.execute("SELECT count(DISTINCT rank) FROM events").fetchall()[0]
        assert seen == ranks, f"{seen} of {ranks} ranks are in the table"
        size = sum(file.size for file in sources.files)
    own, child = peak_mb()
    print(f"{ranks:,} logs of {size / ranks / 1e6:.1f} MB, {size / 1e9:.2f} GB, {os.cpu_count()} cores: {counts}")
    print(f"wall {found.wall_s:.1f} s, CPU {found.cpu_s:.1f} s ({found.cpu_s / size * 1e9:.1f} s a GB)")
    print(f"most memory: {own:.0f} MB here, {child:.0f} MB in the largest reader")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--ranks", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if args.ranks:
            (Path(folder) / "logs").mkdir()
            logs(Path(folder) / "logs", args.ranks)
        if args.rows:
            queries(Path(folder), args.rows, args.rounds)


if __name__ == "__main__":
    main()
