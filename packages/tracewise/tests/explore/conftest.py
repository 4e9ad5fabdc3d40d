"""A table of 1,000 rows with hostile and missing values, as Python sees it and in a locked database."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest

from tracewise.explore.engine import Engine
from tracewise.store.database import Database

ROWS = 1_000
START = datetime(2026, 11, 22, 3, 0, tzinfo=UTC)
TEXTS = (
    "forward", "Forward", "backward", "all_reduce", "", "O'Brien", 'say "hi"', "a,b", "a:b", "100%", "_", "x;y",
    "--",
    "'; DROP TABLE hostile; --", "<script>alert(1)</script>", "\u202eevil", "tab\there", "line\nbreak", "日本", " ",
    "?", "$1", "\\", "{0}", None,
)  # fmt: skip
# A column whose name is an attack, to be quoted like any other.
ODD_NAME = 'odd"; DROP TABLE hostile; --'


def make_rows() -> list[dict[str, object]]:
    """Seeded, so that a failure can be looked at."""
    source = random.Random(20261122)
    rows = []
    for number in range(ROWS):
        moment = START + timedelta(milliseconds=source.randrange(3_600_000))
        rows.append(
            {
                "time": moment.replace(tzinfo=None) if number % 50 else None,
                "rank": source.choice([0, 1, 2, 3, -1, None]),
                "kind": source.choice(TEXTS),
                "dur_us": source.choice([None, 0.0, 0.5, 1.25, 1e6, -3.0, float(source.randrange(100_000))]),
                "is_ok": source.choice([True, False, None]),
                ODD_NAME: source.choice(TEXTS),
                "weight": source.choice([1, 2, 5]),
            }
        )
    return rows


@pytest.fixture(scope="session")
def rows():
    return make_rows()


def make_database() -> Database:
    database = Database(threads=1)
    table = pa.Table.from_pylist(
        make_rows(),
        schema=pa.schema(
            [
                ("time", pa.timestamp("us")),
                ("rank", pa.int64()),
                ("kind", pa.string()),
                ("dur_us", pa.float64()),
                ("is_ok", pa.bool_()),
                (ODD_NAME, pa.string()),
                ("weight", pa.int32()),
            ]
        ),
    )
    database.connection.register("incoming", table)
    database.create_loaded("hostile", "SELECT * FROM incoming")
    database.connection.unregister("incoming")
    database.lock()
    return database


@pytest.fixture(scope="session")
def engine():
    with make_database() as database:
        yield Engine(database)
