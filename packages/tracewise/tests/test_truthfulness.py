"""A field of an unexpected type costs that field and never the record, and it is told."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tracewise.find.answers import find_answers
from tracewise.model.catalogue import KINDS
from tracewise.model.entities import Run
from tracewise.model.runs import find_runs, load_run
from tracewise.read.source import open_sources

from .golden import NAMES, golden
from .mutations import split_records
from .test_log import CLOCK

VALUES = [None, 0, "x", [], {}]


def examples() -> dict[str, bytes]:
    """One record of each kind that the golden logs have."""
    found: dict[str, bytes] = {}
    for name in NAMES:
        for record in split_records(golden(name)):
            head = record.split(b"\n", 1)[0]
            kind = next(key for key in json.loads(head[head.index(b"] {") + 2 :]) if key != "rank")
            if len(record) < 60_000:
                found.setdefault(kind, record)
    return found


EXAMPLES = examples()
FIELDS = [
    (kind, field)
    for kind, record in EXAMPLES.items()
    for field in json.loads(record.split(b"\n", 1)[0].partition(b"] ")[2])[kind] or {}
    if kind != "str"
]


def with_value(record: bytes, kind: str, field: str, value: object) -> bytes:
    head, separator, body = record.partition(b"\n")
    before, bracket, text = head.partition(b"] ")
    envelope = json.loads(text)
    envelope[kind][field] = value
    return before + bracket + json.dumps(envelope).encode() + separator + body


def load(data: bytes, folder: Path) -> Run:
    folder.mkdir(exist_ok=True)
    (folder / "x.log").write_bytes(data)
    with open_sources([folder]) as sources:
        return load_run(find_runs(sources)[0])


@pytest.mark.parametrize(("kind", "field"), FIELDS)
def test_no_value_of_a_field_loses_the_record(tmp_path, kind, field):
    for number, value in enumerate(VALUES):
        run = load(CLOCK + with_value(EXAMPLES[kind], kind, field, value), tmp_path / str(number))
        assert run.health.records == 2
        if kind != "chromium_event":
            units = [*run.compilations, *(rank.outside for rank in run.ranks)]
            assert [record.kind for unit in units for record in unit.records] == [kind]


@pytest.mark.parametrize("kind", EXAMPLES)
def test_a_kind_that_is_no_object_is_told(tmp_path, kind):
    record = EXAMPLES[kind]
    head, separator, body = record.partition(b"\n")
    before, bracket, text = head.partition(b"] ")
    envelope = json.loads(text)
    envelope[kind] = 7
    run = load(CLOCK + before + bracket + json.dumps(envelope).encode() + separator + body, tmp_path / "x")
    assert run.health.records == 2
    if kind != "chromium_event":
        assert run.health.counts["bad_field"] >= 1


def test_an_unknown_kind_is_named(tmp_path):
    run = load(CLOCK + EXAMPLES["dynamo_start"].replace(b"dynamo_start", b"dynamo_begin"), tmp_path / "x")
    assert run.health.unknown_kinds == {"dynamo_begin": 1}
    assert not run.health.is_clean


def test_the_catalogue_has_every_kind_of_the_golden_logs():
    assert EXAMPLES.keys() <= KINDS.keys()


EXPORTS = ["export-checked", "export-draft", "export-kernels"]
EXPORT_FIELDS = [
    (name, number, kind, field)
    for name in EXPORTS
    for number, kind, value in (
        (number, *next(iter(json.loads(record.split(b"\n", 1)[0].partition(b"] ")[2]).items())))
        for number, record in enumerate(split_records(golden(name)))
    )
    for field in (value if isinstance(value, dict) else ())
    if kind in {"guard_added", "missing_fake_kernel", "mismatched_fake_kernel", "propagate_real_tensors_provenance"}
]


@pytest.mark.slow_but_one_in(4)
@pytest.mark.parametrize(("name", "number", "kind", "field"), EXPORT_FIELDS)
def test_no_damage_makes_an_export_sound(tmp_path, name, number, kind, field):
    records = split_records(golden(name))
    for count, value in enumerate(VALUES):
        damaged = [*records]
        damaged[number] = with_value(records[number], kind, field, value)
        # The other records of the same kind go, so that this one alone speaks against the export.
        kept = [r for n, r in enumerate(damaged) if n == number or not any(k in r[:300] for k in AGAINST)]
        answer = find_answers(load(b"".join(kept), tmp_path / str(count))).export
        assert answer is not None
        assert answer.verdict != "sound", (field, value)


AGAINST = (b'{"guard_added"', b'{"missing_fake', b'{"mismatched_fake', b'{"propagate_real')
