"""The pass over a log: what the grammar says is read back, and every oddity is named, counted and survived."""

from __future__ import annotations

from pathlib import Path

import pytest

from tracewise.read.grammar import LogRecord
from tracewise.read.health import REASONS, Health
from tracewise.read.log import LogReader

from .writing import START_US, Writer, artifact, event, head, ids, record


def read(data: bytes, folder: Path, **options: int) -> tuple[list[LogRecord], Health]:
    path = folder / "a.log"
    path.write_bytes(data)
    health = Health()
    return list(LogReader(path, health, **options)), health


CLOCK = event("dynamo", "B", 0.0)
A = record({"dump_file": {"name": "a"}, **ids()}, "one\n\ntwo\r\n", second=1)
B = record({"dump_file": {"name": "b"}, **ids()}, "", second=2)
C = record({"link": {"name": "c", "url": "https://example.org"}, **ids()}, second=3)


@pytest.mark.parametrize("chunk_bytes", [1, 7, 64, 4096])
def test_records_come_back_whatever_the_chunks(tmp_path, chunk_bytes):
    records, health = read(CLOCK + A + B + C, tmp_path, chunk_bytes=chunk_bytes)
    assert [r.kind for r in records] == ["chromium_event", "dump_file", "dump_file", "link"]
    assert [r.payload for r in records[1:]] == [b"one\n\ntwo\r\n", b"", None]
    assert [r.offset for r in records] == [0, len(CLOCK), len(CLOCK + A), len(CLOCK + A + B)]
    assert [r.line for r in records[2:]] == [(CLOCK + A).count(b"\n") + 1, (CLOCK + A + B).count(b"\n") + 1]
    assert health.is_clean


def test_times_are_utc_by_the_nearest_event(tmp_path):
    records, _ = read(CLOCK + A, tmp_path)
    assert [r.time_us for r in records] == [START_US, START_US + 1_000_000]


def test_a_log_over_new_year_goes_on_in_the_next_year(tmp_path):
    last = record({"chromium_event": {}}, '{\n"name": "x",\n"ts": 1798761599000000.0,\n"ph": "i"\n}')
    last = last.replace(b"V1122 04:00:00", b"V1231 23:59:59")
    records, _ = read(last + C.replace(b"V1122 04:00:03", b"V0101 00:00:01"), tmp_path)
    assert records[1].time_us - records[0].time_us == 2_000_000


def test_a_record_that_ends_with_the_file_is_whole(tmp_path):
    records, health = read((CLOCK + A)[:-1], tmp_path)
    assert records[1].payload == b"one\n\ntwo\r\n"
    assert health.is_clean


BIG = record({"dump_file": {"name": "big"}, **ids()}, "x" * 50 + "\n" + "y" * 3000, second=1)
A_TEXT = b"one\n\ntwo\r\n"
ODDITIES = {
    "a foreign line inside of a payload": (A.replace(b"\n\ttwo", b"\nUserWarning: x\n\ttwo"), "mended", A_TEXT),
    "CR LF at every line": (A.replace(b"\n", b"\r\n"), "crlf", A_TEXT),
    "a changed byte": (A.replace(b"two", b"tvo"), "md5", b"one\n\ntvo\r\n"),
    "a lost payload": (A[: A.index(b"\t")], "missing_payload", None),
    "payload lines that nobody announced": (C + b"\tx\n", "stray_payload", b"x"),
    "a second time the same": (A + A, "duplicate", A_TEXT),
    "NUL bytes before a head": (b"\0" * 40 + A, "nul", A_TEXT),
    "a broken head": (C.replace(b"{", b"{,", 1), "bad_json", None),
    "infinity": (C.replace(b'"frame_id": 0', b'"frame_id": Infinity'), "python_json", None),
    "no kind": (head(ids()), "no_kind", None),
    "a process number of 60 digits": (C.replace(b"11100", b"1" * 60), "not_a_record", None),
    "a record over the limit": (BIG, "huge", None),
}


@pytest.mark.parametrize("name", ODDITIES)
def test_an_oddity_is_named_and_its_neighbours_survive(tmp_path, name):
    data, reason, payload = ODDITIES[name]
    before, after = record({"link": {"name": "before"}}), record({"link": {"name": "after"}}, second=9)
    records, health = read(CLOCK + before + data + after, tmp_path, huge_bytes=2000, chunk_bytes=512)
    assert health.counts[reason] == 1
    names = [r.value["name"] for r in records if r.kind == "link" and isinstance(r.value, dict)]
    assert names[0] == "before"
    assert names[-1] == "after"
    if payload is not None:
        assert payload in [r.payload for r in records]


def test_an_empty_line_does_not_end_a_payload(tmp_path):
    records, health = read(CLOCK + A.replace(b"\n\ttwo", b"\n\n\ttwo") + b"\n" + C, tmp_path)
    assert [r.payload for r in records[1:]] == [A_TEXT, None]
    assert health.is_clean


def test_a_huge_payload_is_checked_without_being_kept(tmp_path):
    records, health = read(CLOCK + BIG + C, tmp_path, huge_bytes=2000, chunk_bytes=512)
    (huge,) = [r for r in records if "huge" in r.flags]
    assert health.counts["md5"] == 0
    assert huge.payload is None
    assert huge.payload_length == len(BIG) - BIG.index(b"\n") - 1
    assert records[-1].offset == len(CLOCK + BIG)
    assert records[-1].line == (CLOCK + BIG).count(b"\n") + 1


@pytest.mark.parametrize("cut", range(1, 30))
def test_a_cut_file_is_called_truncated(tmp_path, cut):
    records, health = read(CLOCK + C + A[: len(A) // 2 + cut], tmp_path)
    assert [r.kind for r in records[:2]] == ["chromium_event", "link"]
    assert set(health.damage) == {"truncated"}


def test_lines_of_two_processes_are_told_apart_by_their_checksums(tmp_path):
    one = record({"dump_file": {"name": "one"}, **ids()}, "a\nb\nc", pid=1, second=1)
    two = record({"dump_file": {"name": "two"}, **ids()}, "d\ne", pid=2, second=1)
    cut_1, cut_2 = one.index(b"\t"), two.index(b"\t")
    mixed = one[:cut_1] + two[:cut_2] + one[cut_1:] + two[cut_2:]
    records, health = read(CLOCK + mixed + C, tmp_path)
    assert [r.payload for r in records if r.kind == "dump_file"] == [b"a\nb\nc", b"d\ne"]
    assert health.is_clean
    assert health.counts["interleaved"] == 2


def test_texts_are_kept_by_process(tmp_path):
    data = record({"str": ["a.py", 0]}, pid=1) + record({"str": ["b.py", 0]}, pid=2) + head({"link": {}}, pid=1)
    records, _ = read(CLOCK + data, tmp_path)
    assert records[-1].strings == {0: "a.py"}


def test_a_reason_without_a_row_is_refused():
    with pytest.raises(KeyError, match="no reason named 'x'"):
        Health().note("x", "f", 1)
    assert all(name == reason.name for name, reason in REASONS.items())


def test_the_writer_of_these_tests_writes_clean_logs(tmp_path):
    log = Writer().compilation("f").compilation("g", frame=1, inside=(artifact("x", "text", **ids(1), second=1),))
    _, health = read(log.data, tmp_path)
    assert health.as_json()["counts"] == {}
