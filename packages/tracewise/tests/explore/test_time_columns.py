"""Every kind of time column places the same rows at the same moments."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest

from tracewise.explore import statements
from tracewise.explore.answers.compute import compute
from tracewise.explore.bind import bind, choose_time
from tracewise.explore.engine import Engine
from tracewise.explore.query import Filter, Op, Query, View
from tracewise.explore.timeparse import Clock, epoch_us
from tracewise.store.database import Database

START = datetime(2026, 11, 22, 3, 0, tzinfo=UTC)
MOMENTS = [START + timedelta(minutes=number * number) for number in range(12)]
MICROSECONDS = [epoch_us(moment) for moment in MOMENTS]
COLUMNS = {
    "timestamp": (pa.array(MICROSECONDS, pa.timestamp("us")), ""),
    "timestamp with zone": (pa.array(MICROSECONDS, pa.timestamp("us", tz="Asia/Tokyo")), ""),
    "timestamp in ms": (pa.array([us // 1000 for us in MICROSECONDS], pa.timestamp("ms")), ""),
    "timestamp in ns": (pa.array([us * 1000 for us in MICROSECONDS], pa.timestamp("ns")), ""),
    "s": (pa.array([us // 10**6 for us in MICROSECONDS]), "s"),
    "s with a fraction": (pa.array([us / 10**6 for us in MICROSECONDS]), "s"),
    "ms": (pa.array([us // 1000 for us in MICROSECONDS]), "ms"),
    "us": (pa.array(MICROSECONDS), "us"),
    "ns": (pa.array([us * 1000 for us in MICROSECONDS]), "ns"),
}


@pytest.fixture(scope="module")
def engine():
    with Database(threads=1) as database:
        table = pa.table({**{name: array for name, (array, _) in COLUMNS.items()}, "number": list(range(12))})
        database.connection.register("incoming", table)
        database.create_loaded("moments", "SELECT * FROM incoming")
        database.connection.unregister("incoming")
        database.lock()
        yield Engine(database)


def answered(engine, query):
    table = engine.database.tables["moments"]
    time, issues = choose_time(query, table)
    assert not issues
    with engine.session() as session:
        first, last = session.fetch(statements.extent(table, time))[0]
        assert (first, last) == (MICROSECONDS[0], MICROSECONDS[-1])
        bound = bind(query, table, time, Clock(last, first, last))
        assert not bound.issues
        return compute(bound, session)


@pytest.mark.parametrize("name", COLUMNS)
def test_a_series_is_the_same(engine, name):
    query = Query(
        view=View.SERIES, time_column=name, time_unit=COLUMNS[name][1], grain="30 min", start="03:09", end="04:21"
    )
    (line,) = answered(engine, query).lines
    expected = [0] * 3
    for number, moment in enumerate(MOMENTS):
        if 3 <= number < 9:  # from 3:09 on, and before 4:21
            expected[(moment - START) // timedelta(minutes=30)] += 1
    assert list(line.values) == expected


@pytest.mark.parametrize("name", COLUMNS)
def test_samples_come_newest_first_page_by_page(engine, name):
    query = Query(time_column=name, time_unit=COLUMNS[name][1], columns=("number",), limits=((View.SAMPLES, 5),))
    first = answered(engine, query)
    second = answered(engine, replace(query, after=first.next_page))
    assert [sample.cells[0] for sample in (*first.samples, *second.samples)] == list(range(11, 1, -1))
    assert [sample.time_us for sample in first.samples] == MICROSECONDS[:6:-1]


@pytest.mark.parametrize("name", [name for name, (_, unit) in COLUMNS.items() if not unit])
def test_a_filter_on_a_time_takes_times(engine, name):
    query = Query(time_column=name, filters=(Filter(name, Op.GE, ("2026-11-22 04:21",)),), columns=("number",))
    assert [sample.cells[0] for sample in answered(engine, query).samples] == [11, 10, 9]
