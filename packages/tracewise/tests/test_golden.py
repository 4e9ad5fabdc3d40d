"""Real logs: what the model says of them is what a second, naive reader counts."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tracewise.model.entities import Run
from tracewise.model.payloads import Payloads
from tracewise.model.runs import find_runs, load_run
from tracewise.read.source import open_sources
from tracewise.tables.rows import rows
from tracewise.tables.schema import TABLES

from .golden import NAMES, facts, golden


@pytest.fixture(scope="module")
def run_of(tmp_path_factory):
    """The run of a golden log, read once."""
    folder = tmp_path_factory.mktemp("golden")
    runs: dict[str, Run] = {}

    def load(name: str) -> Run:
        if name not in runs:
            path = folder / name / f"{name}.log"
            path.parent.mkdir()
            path.write_bytes(golden(name))
            with open_sources([path.parent]) as sources:
                (spans,) = find_runs(sources)
                runs[name] = load_run(spans)
        return runs[name]

    return load


def records_of(run: Run) -> list:
    return [r for rank in run.ranks for unit in [*rank.compilations.values(), rank.outside] for r in unit.records]


@pytest.mark.parametrize("name", NAMES)
def test_every_record_is_in_the_model(run_of, name):
    expected, run = facts(name), run_of(name)
    kept = Counter(record.kind for record in records_of(run))
    told_elsewhere = {"str", "chromium_event"}
    assert kept == {kind: count for kind, count in expected.kinds.items() if kind not in told_elsewhere}
    assert Counter(r.name for r in records_of(run) if r.kind == "artifact") == expected.artifacts
    assert run.health.records == sum(expected.kinds.values())
    assert sum(len(rank.spans) for rank in run.ranks) == expected.begins
    assert sum(span.dur_us is not None for rank in run.ranks for span in rank.spans) == expected.ends
    assert sum(len(rank.instants) for rank in run.ranks) == expected.instants


@pytest.mark.parametrize("name", NAMES)
def test_compilations_are_those_of_the_log(run_of, name):
    expected, units = facts(name), run_of(name).compilations
    assert {tuple(unit.id[:3]) for unit in units} == expected.ids
    assert sorted(u.metrics["fail_type"] for u in units if u.status == "failed") == sorted(expected.failures)
    assert sum(len(unit.restart_reasons) for unit in units) == expected.restarts
    everything = [*units, *(rank.outside for rank in run_of(name).ranks)]
    assert sum(u.duration_us for u in everything if "duration_us" in u.metrics) == expected.compile_us
    assert sum(len(unit.breaks) for unit in units) == sum(
        expected.artifacts[artifact] for artifact in ("dynamo_graph_break_reason", "dynamo_error")
    )
    states = Counter(event.state for unit in units for event in unit.caches)
    for state in ("hit", "miss", "bypass"):
        assert states[state] == sum(n for a, n in expected.artifacts.items() if a.endswith(f"_cache_{state}"))


# Strings that torch wrote before it turned the log's handler off are missing in draft exports.
EXPECTED_ODDITIES = {"export-kernels": {"year_guessed", "no_strings"}, "export-draft": {"year_guessed", "no_strings"}}


@pytest.mark.parametrize("name", NAMES)
def test_nothing_in_a_real_log_is_odd(run_of, name):
    assert set(run_of(name).health.counts) <= EXPECTED_ODDITIES.get(name, set())


@pytest.mark.parametrize("name", ["basic-break", "export-checked", "ranks-shape-1"])
def test_payloads_are_read_from_where_the_records_say(run_of, name):
    import hashlib

    run = run_of(name)
    with Payloads(run) as payloads:
        for record in records_of(run):
            if record.md5:
                assert hashlib.md5(payloads.read(record)).hexdigest() == record.md5
            else:
                assert payloads.read(record) == b""


@pytest.mark.parametrize("name", ["basic-recompile", "basic-limit", "ranks-none-0"])
@pytest.mark.parametrize("table", TABLES)
def test_rows_have_the_columns_of_their_table(run_of, name, table):
    run, width = run_of(name), len(TABLES[table].columns)
    types = {"time": int, "integer": int, "real": float, "text": str, "json": str, "boolean": bool}
    for row in rows(run, table):
        assert len(row) == width
        for column, value in zip(TABLES[table].columns, row, strict=True):
            assert value is None or type(value) is types[column.type], (column, value)


def test_the_events_table_has_a_row_a_record(run_of):
    expected = facts("basic-simple").kinds
    kinds = Counter(row[TABLES["events"].names.index("kind")] for row in rows(run_of("basic-simple"), "events"))
    assert kinds == {kind: count for kind, count in expected.items() if kind != "str"}


def test_an_id_that_is_used_again_after_a_reset_is_another_compilation(run_of):
    assert [str(unit.id) for unit in run_of("basic-cache").compilations] == ["[0/0]", "[0/0 #2]"]


def test_runs_are_told_apart_and_ranks_put_together(tmp_path):
    for name in NAMES:
        if name.startswith("ranks-"):
            variant, rank = name.split("-")[1:]
            folder = tmp_path / variant
            folder.mkdir(exist_ok=True)
            (folder / f"dedicated_log_torch_trace_rank_{rank}_abcd123{rank}.log").write_bytes(golden(name))
    with open_sources([tmp_path]) as sources:
        runs = [load_run(spans, number) for number, spans in enumerate(find_runs(sources))]
    assert [Path(run.folder).name for run in runs] == ["none", "shape", "order", "late"]
    assert [[rank.number for rank in run.ranks] for run in runs] == [[0, 1]] * 4
    assert [unit.function for unit in runs[2].compilations if unit.id.frame == 0] == ["f", "g"]


def test_two_runs_in_one_folder_are_two(tmp_path):
    for number, name in enumerate(["basic-simple", "basic-fail"]):
        (tmp_path / f"dedicated_log_torch_trace_abcd123{number}.log").write_bytes(golden(name))
    with open_sources([tmp_path]) as sources:
        assert [len(spans) for spans in find_runs(sources)] == [1, 1]


def test_two_processes_without_ranks_keep_their_compilations_apart(tmp_path):
    for number, name in enumerate(["basic-simple", "basic-infer"]):
        (tmp_path / f"dedicated_log_torch_trace_abcd123{number}.log").write_bytes(golden(name))
    with open_sources([tmp_path]) as sources:
        (spans,) = find_runs(sources)
        run = load_run(spans)
    assert [str(unit.id) for unit in run.compilations] == ["[0/0]", "[0/0]"]
    assert len({unit.process for unit in run.compilations}) == 2
    assert len(run.by_key) == 2
