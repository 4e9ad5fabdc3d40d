"""Damaged logs: no exception, and a damaged record costs itself and its neighbour at most.

``TRACEWISE_FUZZ=10000`` sets the number of mutations; the seed is part of each test's name.
"""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from random import Random

import pytest

from tracewise.model.runs import find_runs, load_run
from tracewise.read.archive import InputError
from tracewise.read.health import Health
from tracewise.read.log import LogReader
from tracewise.read.source import open_sources
from tracewise.tables.rows import rows
from tracewise.tables.schema import TABLES

from .golden import NAMES, golden
from .mutations import MUTATIONS, split_records

MUTATED = int(os.environ.get("TRACEWISE_FUZZ", "120"))
# Logs of at most so many records: each is read once a mutation.
SHORT_RECORDS = 120


def short_log(name: str, random: Random) -> list[bytes]:
    """Some records of a golden log one after the other, from a random place."""
    records = split_records(golden(name))
    begin = random.randrange(max(len(records) - SHORT_RECORDS, 1))
    return [record for record in records[begin : begin + SHORT_RECORDS] if len(record) < 50_000]


def heads(data: bytes, folder: Path) -> Counter[tuple[str, bytes | None]]:
    path = folder / "heads.log"
    path.write_bytes(data)
    return Counter((record.kind, record.payload) for record in LogReader(path, Health()))


@pytest.mark.parametrize("seed", range(MUTATED))
def test_a_damaged_log_is_read(tmp_path, seed):
    random = Random(seed)
    records = short_log(random.choice(NAMES), random)
    victim = random.randrange(len(records))
    clean = heads(b"".join(records), tmp_path)
    mutation = random.choice(MUTATIONS)
    damaged = [*records]
    damaged[victim] = mutation(records[victim], random)
    data = b"".join(damaged)
    found = heads(data, tmp_path)
    # A record that is doubled, or cut without a trace, loses nothing.
    assert sum((clean - found).values()) <= 2, f"{mutation.__name__} of record {victim} cost {clean - found}"
    read_all(data, tmp_path)


def read_all(data: bytes, folder: Path) -> None:
    """Everything that is made from a log, whatever the log holds."""
    path = folder / "trace" / "x.log"
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(data)
    with open_sources([path]) as sources:
        try:
            found = find_runs(sources)
        except InputError:
            return
        for number, spans in enumerate(found):
            run = load_run(spans, number, sources.health)
            for table in TABLES:
                for _ in rows(run, table):
                    pass
