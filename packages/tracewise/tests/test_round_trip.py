"""Random records written in the grammar are read back equal, however they are cut, packed and tagged."""

from __future__ import annotations

import gzip
import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from tracewise.read.grammar import LogRecord
from tracewise.read.health import Health
from tracewise.read.log import LogReader
from tracewise.read.source import open_sources

from .test_log import CLOCK
from .test_sources import prefixed
from .writing import record

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
KINDS = st.sampled_from(["artifact", "dump_file", "dynamo_start", "something_new"])
PAYLOADS = (
    st.none() | st.text(alphabet=st.characters(codec="utf-8")) | st.sampled_from(["", "\n", "\t\n\t", "\r\n", "\0"])
)
RECORDS = st.lists(st.tuples(KINDS, JSON, PAYLOADS), min_size=1, max_size=6)


def written(records: list) -> list[bytes]:
    # A number of its own keeps two equal records from being a duplicate.
    return [record({kind: value, "frame_id": number}, payload) for number, (kind, value, payload) in enumerate(records)]


def key(log: LogRecord) -> tuple:
    return (log.kind, repr(log.value), log.payload, log.md5)


def read_back(data: bytes, chunk_bytes: int = 1 << 20, packed: bool = False) -> tuple[list[tuple], Health]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x.log"
        path.write_bytes(gzip.compress(CLOCK + data) if packed else CLOCK + data)
        with open_sources([path]) as sources:
            health = Health()
            return [key(r) for r in LogReader(sources.files[0].path, health, chunk_bytes=chunk_bytes)][1:], health


def expected(records: list) -> list[tuple]:
    return [read_back(part)[0][0] for part in written(records)]


@settings(max_examples=60)
@given(RECORDS, st.integers(1, 200), st.booleans(), st.booleans())
def test_records_are_read_back_equal(records, chunk_bytes, is_packed, is_cut):
    data = b"".join(written(records))
    found, health = read_back(data[:-1] if is_cut else data, chunk_bytes, is_packed)
    assert [(kind, payload) for kind, _, payload, _ in found] == [
        (kind, None if payload is None else payload.encode()) for kind, _, payload in records
    ]
    assert [value for _, value, _, _ in found] == [value for _, value, _, _ in expected(records)]
    assert set(health.counts) <= {"python_json"}


@settings(max_examples=40)
@given(RECORDS)
def test_line_ends_and_tags_added_on_the_way_change_nothing(records):
    data = b"".join(written(records))
    whole = [(kind, payload) for kind, _, payload, _ in read_back(data)[0]]
    for changed in (prefixed(data, b"[trainer3]: "), data.replace(b"\n", b"\r\n")):
        head = prefixed(CLOCK, b"[trainer3]: ") if changed.startswith(b"[") else CLOCK
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "x.log"
            path.write_bytes(head + changed)
            with open_sources([path]) as sources:
                found = [(r.kind, r.payload) for r in LogReader(sources.files[0].path, Health())][1:]
        assert found == whole
