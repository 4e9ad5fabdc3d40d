"""`tracewise ranks` on dumps, profiler traces, trace logs and plans: what it prints and how it ends."""

from __future__ import annotations

import gzip
import json

import pytest

from ..command import run_command
from ..reports import rank_logs
from .dumps import plan_lines, write_dumps

HEADLINES = {
    "none": "All 4 ranks agree: 42 collectives over 2 groups.",
    "skip": "Group 0 (default_pg), collective 5: ranks 0, 2, 3 call broadcast (train.py:31), rank 1 calls all_gather "
    "(train.py:35). Rank 1 left the common path after collective 4 (all_reduce, train.py:21).",
    "op": "Group 0 (default_pg), collective 5: ranks 0, 2, 3 call broadcast (train.py:31), rank 1 calls all_reduce "
    "(train.py:29). Rank 1 left the common path after collective 4 (all_reduce, train.py:21).",
    "late": "Group 0 (default_pg): rank 1 enters broadcast (train.py:31), collective 2, 0.5 s after the first, and at "
    "3 of 9 collectives: the straggler.",
}


@pytest.mark.parametrize("bug", HEADLINES)
def test_dumps_of_gloo_are_understood(tmp_path, capsys, bug):
    status, out, _ = run_command(capsys, "ranks", write_dumps(tmp_path, bug))
    assert out.splitlines()[0] == f"collectives: {HEADLINES[bug]}"
    assert status == (bug != "none")


def test_dumps_as_json_say_the_same_without_lines(tmp_path, capsys):
    status, out, _ = run_command(capsys, "ranks", write_dumps(tmp_path, "skip", as_json=True), "--json")
    verdict = json.loads(out)["collectives"]["verdicts"][0]
    assert (status, verdict["ranks"], verdict["collective"], verdict["site"]) == (1, [1], 5, None)


def test_of_both_forms_the_one_with_stacks_counts(tmp_path, capsys):
    write_dumps(tmp_path, "skip", as_json=True)
    _, out, _ = run_command(capsys, "ranks", write_dumps(tmp_path, "skip"))
    assert "train.py:31" in out


def test_the_plan_says_at_which_line_a_rank_left_it(tmp_path, capsys):
    plan = tmp_path / "plan.jsonl"
    plan.write_text(plan_lines())
    status, out, _ = run_command(capsys, "ranks", write_dumps(tmp_path / "dumps", "skip"), "--plan", plan)
    assert status == 1
    assert out.splitlines()[0] == (
        "plan: Rank 1 stopped following the plan at expected step 5 (train.py:31): broadcast was expected, it called "
        "all_gather (train.py:35). 1 skipped call; after that the plan fits again."
    )
    assert "Ranks 0, 2 never finished the plan: 6 steps left, next is step 7, all_reduce (train.py:33)" in out
    assert "Rank 3 never finished the plan: 4 steps left" in out


def test_a_run_that_followed_its_plan_is_said_to_have(tmp_path, capsys):
    plan = tmp_path / "plan.jsonl"
    plan.write_text(plan_lines())
    status, out, _ = run_command(capsys, "ranks", write_dumps(tmp_path / "dumps", "none"), "--plan", plan)
    assert (status, out.splitlines()[0]) == (0, "plan: Everything that happened was expected: 42 collectives.")


def test_a_plan_is_taken_from_among_the_paths_and_its_findings_are_shown(tmp_path, capsys):
    finding = {
        "v": 1,
        "kind": "finding",
        "code": "SW501",
        "rank": 1,
        "file": "train.py",
        "line": 31,
        "message": "hangs",
    }
    (tmp_path / "plan.jsonl").write_text(plan_lines() + json.dumps(finding | {"severity": "error"}) + "\n")
    _, out, _ = run_command(capsys, "ranks", write_dumps(tmp_path, "none"))
    assert "SW501 at train.py:31: hangs" in out


def test_a_call_of_another_size_than_planned_is_told(tmp_path, capsys):
    plan = tmp_path / "plan.jsonl"
    plan.write_text(
        plan_lines().replace('"shape": [8], "file": "/home/me/train.py", "line": 31', '"shape": [9], "line": 31')
    )
    _, out, _ = run_command(capsys, "ranks", write_dumps(tmp_path / "dumps", "none"), "--plan", plan)
    assert "Ranks 0-3 stopped following the plan at expected step 2" in out
    assert "of 9 elements was expected, it passed 8" in out


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{", "plan.jsonl:1: not a line of an expected schedule"),
        ('{"v": 2, "kind": "collective"}', "version 2, expected 1"),
        ('{"v": 1, "kind": "collective", "ranks": "all"}', "ranks is 'all', expected a list of numbers"),
        ('{"v": 1, "kind": "other"}', "kind 'other'"),
    ],
)
def test_a_broken_plan_is_refused_with_its_line(tmp_path, capsys, line, said):
    plan = tmp_path / "plan.jsonl"
    plan.write_text(line + "\n")
    status, out, err = run_command(capsys, "ranks", write_dumps(tmp_path / "dumps", "none"), "--plan", plan)
    assert (status, out) == (2, "")
    assert said in err


def event(name: str, category: str, thread: int, start: float, dur: float, **args: object) -> dict[str, object]:
    return {"ph": "X", "cat": category, "name": name, "pid": 1, "tid": thread, "ts": start, "dur": dur, "args": args}


def trace(rank: int, durations: list[float]) -> bytes:
    """A profiler trace of one all_reduce a step."""
    events: list[object] = [
        {"ph": "M", "name": "process_name", "pid": 1, "tid": 0, "ts": 0, "args": {"name": "python"}}
    ]
    start = 1000.0
    for step, dur in enumerate(durations):
        events += [
            event(f"ProfilerStep#{step}", "user_annotation", 1, start, dur + 100),
            event("aten::mm", "cpu_op", 1, start, 90.0),
            event("aten::copy_", "cpu_op", 1, start + 10, 40.0),
            event("gloo:all_reduce", "user_annotation", 2, start + 90, dur, **{"Input Dims": [[65536]]}),
        ]
        start += dur + 200
    group = {"pg_name": "0", "pg_desc": "default_pg", "pg_size": 2, "ranks": [0, 1]}
    distributed = {"backend": "gloo", "rank": rank, "world_size": 2, "pg_config": [group]}
    head = {"schemaVersion": 1, "distributedInfo": distributed, "baseTimeNanoseconds": 1_795_000_000_000_000_000}
    return json.dumps({**head, "displayTimeUnit": "ms", "traceEvents": events}, indent=2).encode()


def test_profiler_traces_name_the_rank_that_others_wait_for(tmp_path, capsys):
    (tmp_path / "a.pt.trace.json.gz").write_bytes(gzip.compress(trace(0, [3000, 3000, 203000, 3000])))
    (tmp_path / "b.pt.trace.json.gz").write_bytes(gzip.compress(trace(1, [3000, 3000, 3000, 3000])))
    status, out, _ = run_command(capsys, "ranks", tmp_path)
    assert status == 1
    assert "rank 1 enters all_reduce, collective 3, 0.2 s after the first, and only there; rank 0 waited for it" in out
    _, out, _ = run_command(capsys, "ranks", tmp_path, "--json")
    answer = json.loads(out)
    assert [step["name"] for step in answer["steps"] if step["rank"] == 0] == [f"ProfilerStep#{n}" for n in range(4)]
    assert answer["operators"]["1"] == [
        {"name": "aten::mm", "count": 4, "self_us": 200.0},
        {"name": "aten::copy_", "count": 4, "self_us": 160.0},
    ]


def test_a_trace_that_is_cut_short_gives_no_verdict_of_agreement(tmp_path, capsys):
    (tmp_path / "a.json").write_bytes(trace(0, [3000] * 4))
    (tmp_path / "b.json").write_bytes(trace(1, [3000] * 4)[:-400])
    status, out, _ = run_command(capsys, "ranks", tmp_path)
    assert status in (1, 2)
    assert "not understood: truncated" in out


LOGS = {
    "none": (0, "All 2 ranks agree: 6 compilations each."),
    "late": (0, "All 2 ranks agree: 6 compilations each."),
    "shape": (1, "different recompilations: rank 1: at position 3 compiled g (gen_ranks.py:22) again, rank 0 did not"),
    "order": (1, "different program: rank 1: at position 1 compiled g (gen_ranks.py:22) where rank 0 compiled f"),
}


@pytest.mark.parametrize("variant", LOGS)
def test_trace_logs_of_ranks_are_laid_beside_each_other(tmp_path, capsys, variant):
    for name, data in rank_logs(variant).items():
        (tmp_path / name).write_bytes(data)
    status, out, _ = run_command(capsys, "ranks", tmp_path)
    expected, headline = LOGS[variant]
    assert out.startswith(f"compilations: {headline}")
    assert status == expected


def test_one_rank_alone_is_no_agreement(tmp_path, capsys):
    write_dumps(tmp_path, "none", world=1)
    status, out, _ = run_command(capsys, "ranks", tmp_path)
    assert (status, out) == (2, "collectives: Only rank 0 left a file: nothing to compare it with.\n")


def test_files_that_tell_nothing_of_ranks_are_refused(tmp_path, capsys):
    (tmp_path / "notes.txt").write_text("nothing")
    status, _, err = run_command(capsys, "ranks", tmp_path)
    assert status == 2
    assert "no flight-recorder dump, profiler trace or trace log" in err
