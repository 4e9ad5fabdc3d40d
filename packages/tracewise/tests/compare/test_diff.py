"""`tracewise diff`: a run against itself has no difference; one planted change is told, and nothing else."""

from __future__ import annotations

import json

import pytest

from ..command import run_command
from ..golden import NAMES, golden
from ..writing import Writer, artifact, ids, record

BREAK = """Graph break in user code at train.py:12
Graph Break Reason: Encountered graph break when attempting to trace CALL: a call:

Unsupported builtin
  Explanation: Dynamo does not trace print
  Hint: Do not print.
"""
GRAPH = 'def forward(self, x: "f32[4]"):\n    mul_1: "f32[4]" = x.sin()\n    return (mul_1,)\n'
LISTS = ("new_problems", "gone_problems", "new_compilations", "gone_compilations", "recompilations", "times", "texts",
         "caches", "configs", "facts")  # fmt: skip


def log(
    *,
    broken: bool = False,
    seconds: float = 1.0,
    limit: int = 8,
    graph: str = GRAPH,
    again: bool = False,
    state: str = "hit",
    config: str = "",
    version: str = "2.13.0",
    line: int = 10,
    more: bool = False,
) -> Writer:
    """A run of two functions, with one thing changed."""
    key = {"key": "k" if state == "hit" else "other", "components": [f"[{state}] gm: x"], "cache_state": state}
    inside = [
        record({"dynamo_output_graph": {}, **ids()}, graph),
        artifact(f"fx_graph_cache_{state}", json.dumps(key), "json", **ids()),
    ]
    inside += [artifact("dynamo_graph_break_reason", BREAK, **ids())] if broken else []
    settings = {"dynamo_config": json.dumps({"recompile_limit": limit}), "inductor_config": config or "{}"}
    writer = Writer()
    writer.add(artifact("torch_version", json.dumps({"pytorch_version": version, "commit": "abc"}), "json"))
    writer.compilation("f", seconds=seconds, inside=tuple(inside), line=line, **settings)
    writer.compilation("g", frame=1, line=20, seconds=2.0, **settings)
    if again:
        reason = artifact("recompile_reasons", json.dumps(["1/0: n == 1"]), "json", **ids(1, 1))
        writer.compilation("g", frame=1, compile=1, line=20, seconds=0.01, inside=(reason,), **settings)
    if more:
        writer.compilation("h", frame=2, line=30, seconds=0.01, **settings)
    return writer


@pytest.fixture
def diff(tmp_path, capsys):
    """Exit status and JSON of the difference of two logs."""

    def run(before: Writer, after: Writer, *options: str):
        for name, writer in (("before", before), ("after", after)):
            (tmp_path / name).mkdir()
            writer.write(tmp_path / name)
        status, out, err = run_command(capsys, "diff", tmp_path / "before", tmp_path / "after", "--json", *options)
        assert err == ""
        return status, json.loads(out)

    return run


def changed(found) -> set[str]:
    return {name for name in LISTS if found[name]}


@pytest.mark.parametrize("name", [name for name in NAMES if not name.startswith("ranks")])
def test_a_run_against_itself_has_no_difference(tmp_path, capsys, name):
    path = tmp_path / "a.log"
    path.write_bytes(golden(name))
    status, out, _ = run_command(capsys, "diff", path, path, "--fail-on", "new-problems,recompiles,slower=0%")
    assert status == 0
    assert out.splitlines()[-1] == "no difference"


PLANTED = {
    "break": ({"broken": True}, {"new_problems"}),
    "slower": ({"seconds": 1.6}, {"times"}),
    "config": ({"limit": 9}, {"configs"}),
    "graph": ({"graph": GRAPH.replace("sin", "cos")}, {"texts"}),
    "names": ({"graph": GRAPH.replace("mul_1", "mul_7")}, set()),
    "cache": ({"state": "miss"}, {"caches"}),
    "version": ({"version": "2.14.0"}, {"facts"}),
    "recompilation": ({"again": True}, {"recompilations", "new_compilations"}),
    "function": ({"more": True}, {"new_compilations"}),
    "moved": ({"line": 11}, set()),
    "noise": ({"seconds": 1.04}, set()),
}


@pytest.mark.parametrize("change", PLANTED)
def test_a_planted_change_is_told_and_nothing_else(diff, change):
    arguments, expected = PLANTED[change]
    _, found = diff(log(), log(**arguments))
    assert changed(found) == expected
    assert found["empty"] == (not expected)


def test_what_is_told_names_the_change(diff):
    arguments = {"broken": True, "seconds": 1.6, "limit": 9, "graph": GRAPH.replace("sin", "cos"), "state": "miss"}
    _, found = diff(log(), log(**arguments))
    (problem,) = found["new_problems"]
    assert (problem["kind"], problem["headline"]) == ("graph-break", "Unsupported builtin")
    assert [(t["what"], t["name"], t["before_us"], t["after_us"]) for t in found["times"]] == [
        ("phase", "dynamo", 3e6, 3.6e6),
        ("function", "f", 1e6, 1.6e6),
    ]
    assert found["configs"] == [{"name": "dynamo_config.recompile_limit", "before": "8", "after": "9"}]
    assert '+    mul_1: "f32[4]" = x.cos()' in found["texts"][0]["diff"]
    assert (found["caches"][0]["before"], found["caches"][0]["after"]) == ("hit", "miss")
    assert found["caches"][0]["components"] == ["gm"]


@pytest.mark.parametrize(
    ("condition", "arguments", "status"),
    [
        ("new-problems", {"broken": True}, 1),
        ("new-problems", {"seconds": 5.0}, 0),
        ("slower=20%", {"seconds": 2.0}, 1),
        ("slower=50%", {"seconds": 2.0}, 0),
        ("recompiles", {"again": True}, 1),
        ("recompiles,new-problems", {"limit": 9}, 0),
    ],
)
def test_the_status_is_that_of_the_conditions(diff, condition, arguments, status):
    assert diff(log(), log(**arguments), "--fail-on", condition)[0] == status


def test_a_gone_problem_is_no_new_one(diff):
    _, found = diff(log(broken=True), log())
    assert changed(found) == {"gone_problems"}


def test_an_unknown_condition_is_wrong_usage(tmp_path, capsys):
    status, _, err = run_command(capsys, "diff", tmp_path, tmp_path, "--fail-on", "slower")
    assert status == 2
    assert "--fail-on slower: unknown; there are new-problems, recompiles, slower=20%" in err


def test_the_page_shows_the_same_and_escapes_it(tmp_path, capsys):
    for name, writer in (("before", log()), ("after", log(graph=GRAPH + "# <script>alert(1)</script>\nx = 1\n"))):
        (tmp_path / name).mkdir()
        writer.write(tmp_path / name)
    status, out, _ = run_command(capsys, "diff", tmp_path / "before", tmp_path / "after", "-o", tmp_path / "out")
    assert status == 0
    assert "graph of [0/0] f" in out
    page = (tmp_path / "out" / "index.html").read_text()
    assert "&lt;script&gt;alert(1)" in page
    assert "<script>" not in page
    assert json.loads((tmp_path / "out" / "diff.json").read_bytes())["texts"]
