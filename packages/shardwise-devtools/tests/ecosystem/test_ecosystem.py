"""The harness of the frameworks, without any framework: command lines, what is kept of a report, the page."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from shardwise_devtools.ecosystem import environment, report
from shardwise_devtools.ecosystem.environment import HERE, Environment
from shardwise_devtools.ecosystem.frameworks import ALL, CHECK, FRAMEWORKS, VERIFY, Case, Framework
from shardwise_devtools.ecosystem.planted import BUGS, Bug, planted
from shardwise_devtools.ecosystem.runs import Found, Run, command_line, load, place, run_case, save, shortened

CASE = Case("a", "olmo_transformer.py", {"dp": 2, "tp": 2}, "--tp {tp}")
FOUND = Found("SW101", "package/model.py:3", "a mixes b")
WRONG = Bug("some", "a", "nothing is summed", "some/step.py", "reduce(x)", "pass")
OF_A_PROGRAM = Bug("some", "a", "all read the same", "olmo_transformer.py", '[mesh.get_local_rank("dp")]', "[0]")
RUN = Run("some", "a", CHECK, 1, "", {"checked_ops": 3}, (FOUND,), 1.0)


def test_every_case_has_a_program_that_is_there_and_axes_for_its_arguments():
    for framework in FRAMEWORKS:
        assert framework.cases or framework.cannot, framework.name
        assert all("==" in pin for pin in framework.pins)
        for case in framework.cases:
            assert set(case.commands) <= set(ALL)
            assert case.program.startswith("-m ") or (HERE / "programs" / case.program).is_file()
            assert "{" not in " ".join(command_line(case, CHECK))


def test_verify_fills_in_the_sizes_itself():
    assert command_line(CASE, CHECK)[-2:] == ["--tp", "2"]
    assert command_line(CASE, VERIFY)[-2:] == ["--tp", "{tp}"]
    more = command_line(replace(CASE, verified="--batch 8"), VERIFY)
    assert (more[0], more[-4:]) == ("verify", ["--tp", "{tp}", "--batch", "8"])
    assert "--batch" not in command_line(replace(CASE, verified="--batch 8"), CHECK)
    assert command_line(replace(CASE, arguments="--ranks {world_size}"), CHECK)[-1] == "4"
    assert command_line(replace(CASE, program="-m package.train"), CHECK)[1:3] == ["-m", "package.train"]


def test_places_and_texts_name_nothing_of_this_machine():
    inside = os.path.join(os.sep, "somewhere", "ecosystem", "megatron-core-0.16.1", "megatron", "core.py")
    assert place({"file": inside, "line": 3}) == "megatron/core.py:3"
    elsewhere = os.path.join(os.sep, "else", "torchrec-1.8.0", "torchrec", "sparse.py")
    assert place({"file": elsewhere, "line": 3}) == "torchrec/sparse.py:3"
    assert place({"file": os.path.join(os.sep, "else", "gpt.py"), "line": 4}) == "gpt.py:4"
    assert place(None) == ""
    assert shortened("cannot read " + os.path.join(os.sep, "a", "b", "c.py") + "\nnow") == "cannot read c.py now"
    assert len(shortened("x" * 500)) == 200


def test_two_versions_differ_by_findings_outcomes_and_counts(tmp_path):
    save([RUN], tmp_path / "old.json")
    (old,) = load(tmp_path / "old.json")
    assert report.difference([old], [RUN]) == ""
    other = replace(RUN, exit_code=0, found=(), counts={"checked_ops": 4}, stopped="it crashed")
    assert report.difference([old], [other]).splitlines() == [
        "some / a / check",
        "  findings -> clean",
        "  stopped: no -> it crashed",
        "  - SW101 package/model.py:3: a mixes b",
        "  checked_ops: 3 -> 4",
    ]
    assert report.difference([old], []).splitlines()[1] == "  is gone"
    assert report.difference([], [old]).splitlines()[1] == "  is new"


def test_the_page_gives_each_finding_its_verdict(monkeypatch):
    some = Framework("some", ("some==1",), (CASE,), ("this: for a reason",))
    monkeypatch.setattr(
        report, "judgements", lambda: [report.Judgement("some", "SW101", "mixes", "false", "it is not")]
    )
    text = report.page([some], [RUN])
    assert "| a | `check` | findings | 3 operations checked |" in text
    assert "SW101 package/model.py:3: a mixes b (a, `check`). **False**: it is not." in text
    assert "| a | `verify` | not run yet |" in text
    assert "- this: for a reason." in text
    monkeypatch.setattr(report, "judgements", list)
    assert "Not judged." in report.page([some], [RUN])


def test_a_framework_that_was_not_run_keeps_what_the_page_says_of_it():
    before = report.page(FRAMEWORKS, [replace(RUN, framework="torchtitan", case=FRAMEWORKS[0].cases[0].name)])
    after = report.page(FRAMEWORKS, [replace(RUN, framework="deepspeed", case="Ulysses", found=())], before)
    old, new = (text.split("\n## ") for text in (before, after))
    changed = [new_one.partition("\n")[0] for old_one, new_one in zip(old, new, strict=True) if old_one != new_one]
    assert changed == ["deepspeed"]
    assert report.page(FRAMEWORKS, [], before) == before


def test_a_row_that_was_not_run_now_is_marked_as_an_older_one():
    some = Framework("some", ("some==1",), (replace(CASE, commands=(CHECK, VERIFY)),))
    before = report.page([some], [RUN])
    after = report.page([some], [replace(RUN, command=VERIFY)], before)
    assert "| a | `check` | findings (an older run) | 3 operations checked |" in after
    assert "| a | `verify` | findings | 3 operations checked |" in after
    told = "- SW101 package/model.py:3: a mixes b (a, `"
    assert before.count(told) == 1
    again = report.page([some], [replace(RUN, command=VERIFY, found=())], before)
    assert again.count(f"{told}check`)") == 1, "a finding of a row that was not run now stays"
    assert told not in report.page([some], [replace(RUN, found=())], before)
    assert after.count("an older run") == report.page([some], [replace(RUN, command=VERIFY)], after).count(
        "an older run"
    )


def test_the_page_says_what_leaves_a_row_open_and_keeps_that_of_rows_that_were_not_run_now():
    some = Framework("some", ("some==1",), (replace(CASE, commands=(CHECK, VERIFY)),))
    asked = replace(RUN, exit_code=3, found=(), open=("what is exchanged over pp_axis",))
    before = report.page([some], [asked])
    told = "What leaves it open:\n\n- what is exchanged over pp\\_axis (a, `check`).\n"
    assert told in before
    after = report.page([some], [replace(RUN, command=VERIFY)], before)
    assert told in after
    assert report.page([some], [replace(asked, command=VERIFY)], before).count("over pp") == 2
    assert "over pp" not in report.page([some], [RUN], before)
    stopped = report.page([some], [replace(RUN, stopped="it was stopped")], before)
    told = "What stops it:\n\n- it was stopped (a, `check`).\n"
    assert told in stopped
    assert told in report.page([some], [replace(RUN, command=VERIFY)], stopped)


def test_what_leaves_a_run_open_is_kept_of_its_report(tmp_path):
    save([replace(RUN, open=("nothing was judged",))], tmp_path / "new.json")
    (again,) = load(tmp_path / "new.json")
    assert again.open == ("nothing was judged",)


def test_a_finding_of_an_older_run_gets_the_verdict_that_was_given_since(monkeypatch):
    some = Framework("some", ("some==1",), (replace(CASE, commands=(CHECK, VERIFY)),))
    monkeypatch.setattr(report, "judgements", list)
    before = report.page([some], [RUN])
    assert "Not judged." in before
    judged = report.Judgement("some", "SW101", "a mixes b", "true", "they part")
    monkeypatch.setattr(report, "judgements", lambda: [judged])
    after = report.page([some], [replace(RUN, command=VERIFY, found=())], before)
    assert after.count("**True**: they part.") == 1
    assert "Not judged." not in after


def test_the_verdicts_can_be_read():
    for one in report.judgements():
        assert one.verdict in ("true", "false")
        assert one.framework in {framework.name for framework in FRAMEWORKS}


@pytest.mark.slow
@pytest.mark.processes
def test_a_case_is_run_with_the_command_of_the_chosen_version(tmp_path, monkeypatch):
    (tmp_path / "programs").mkdir()
    (tmp_path / "programs" / "bad.py").write_text(
        "import torch\n"
        "from torch.distributed.device_mesh import init_device_mesh\n"
        "from shardwise import P, assert_type, set_current_mesh\n"
        "with set_current_mesh(init_device_mesh('cuda', (2,), mesh_dim_names=('dp',))):\n"
        "    torch.relu(assert_type(torch.rand(2), {'dp': P}))\n"
    )
    here = Environment(tmp_path)
    here.work.mkdir()
    here.python = Path(sys.executable)
    monkeypatch.setattr("shardwise_devtools.ecosystem.runs.HERE", tmp_path)
    root = environment.HERE.parents[4]
    run = run_case(here, Framework("some", ()), Case("bad", "bad.py", {"dp": 2}), CHECK, root)
    assert run.exit_code == 1, run
    assert [found.code for found in run.found] == ["SW112"], run.stopped
    assert run.found[0].place == "bad.py:5"
    assert run.open == ()
    (tmp_path / "programs" / "bad.py").write_text("import torch\ntorch.nn.Linear(2, 2)(torch.ones(2))\n")
    run = run_case(here, Framework("some", ()), Case("bad", "bad.py", {"dp": 2}), CHECK, root)
    assert (run.exit_code, run.open) == (3, ("nothing was judged that depends on a parameter",))


@pytest.mark.processes
def test_a_module_that_is_wrong_has_the_line_that_calls_it(tmp_path):
    here = Environment(tmp_path)
    here.work.mkdir()
    here.python = tmp_path / "python"
    wrong = {"kind": "module", "name": "a", "said": "is another", "place": None, "used": {"file": "a.py", "line": 7}}
    told = {"numbers": {"module": wrong, "disagreements": [{**wrong, "kind": "trained", "used": None}]}}
    here.python.write_text(f"#!/bin/sh\necho '{json.dumps(told)}'\n")
    here.python.chmod(0o755)
    run = run_case(here, Framework("some", ()), CASE, VERIFY, tmp_path)
    assert [(found.place, found.text) for found in run.found] == [
        ("a.py:7", "module a is another"),
        ("", "trained a is another"),
    ]


def test_every_planted_bug_is_of_a_case_and_is_told_on_the_page():
    cases = {(framework.name, case.name) for framework in FRAMEWORKS for case in framework.cases}
    assert {(bug.framework, bug.case) for bug in BUGS} <= cases
    assert len({(bug.framework, bug.name) for bug in BUGS}) == len(BUGS)
    bug = next(bug for bug in BUGS if bug.framework == "deepspeed")
    run = replace(RUN, framework="deepspeed", case=bug.name, command=VERIFY)
    text = report.page([framework for framework in FRAMEWORKS if framework.name == "deepspeed"], [run])
    assert f"| {bug.case} | {bug.what} | findings | SW101 package/model.py:3: a mixes b |" in text
    assert "Not judged." not in text
    asked = replace(run, exit_code=3, found=(), open=("all read the same",))
    text = report.page([framework for framework in FRAMEWORKS if framework.name == "deepspeed"], [asked])
    assert f"| {bug.case} | {bug.what} | inconclusive | all read the same |" in text


def test_a_bug_is_planted_in_a_copy(tmp_path):
    here, framework = Environment(tmp_path), Framework("some", ("some==1",), (CASE,))
    package = tmp_path / "some-1" / "some"
    package.mkdir(parents=True)
    (package / "step.py").write_text("reduce(x)\n")
    (package / "__init__.py").write_text("")
    case, first = planted(here, framework, WRONG)
    assert (case.program, (first / "some" / "step.py").read_text()) == (CASE.program, "pass\n")
    assert ((package / "step.py").read_text(), (first / "some" / "__init__.py").exists()) == ("reduce(x)\n", True)
    case, first = planted(here, framework, OF_A_PROGRAM)
    assert "[0]" in Path(command_line(case, VERIFY)[1]).read_text()
    with pytest.raises(ValueError, match="0 times"):
        planted(here, framework, replace(OF_A_PROGRAM, old="that is not there"))
