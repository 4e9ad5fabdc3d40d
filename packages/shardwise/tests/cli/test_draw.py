"""``shardwise draw``: to the terminal, to files, and what it says of what it cannot draw."""

from __future__ import annotations

import time
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner

from shardwise.cli.main import main
from shardwise.diagnostics.printing.printable import cells

SUBJECTS = [
    ["f32[2,3,4,5@tp] {dp: R}", "--mesh", "dp=2,tp=2"],
    ["f32[4096@(dp,tp), 4096]", "--mesh", "dp=8,tp=4"],
    ["--mesh", "pp=2,dp=4,tp=8", "--highlight", "dp", "--nodes", "8"],
    ["(2,4):(8,1)"],
    ["all_gather S(0) -> R", "--mesh", "tp=4"],
    ["types"],
    ["S(1)"],
    ["P(max)"],
    ["transitions"],
    ["f32[4,4]", "--names", "batch,<hidden>"],
    ["f32[4@tp]", "--mesh", "dp=1,tp=1"],
    ["f32[4@tp]", "--mesh", "tp=2", "--local"],
]


def run(*arguments):
    return CliRunner().invoke(main, ["draw", *arguments], prog_name="shardwise")


@pytest.mark.parametrize("subject", SUBJECTS, ids=lambda one: one[0])
def test_every_subject_is_printed_and_written(subject, tmp_path):
    printed = run(*subject)
    assert printed.exit_code == 0, printed.output
    assert "┌" in printed.stdout or "┏" in printed.stdout
    for suffix in (".svg", ".html", ".txt"):
        file = tmp_path / f"picture{suffix}"
        assert run(*subject, "-o", str(file)).exit_code == 0
        assert file.read_text("utf-8")
    ElementTree.fromstring((tmp_path / "picture.svg").read_text("utf-8"))
    assert "<hidden>" not in (tmp_path / "picture.html").read_text("utf-8")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "nothing to draw"),
        (["f32[8, 16@tq]", "--mesh", "dp=2,tp=4"], "expected one of the axes dp, tp at position 10"),
        (["f32[8@tp]"], "expected no axis, because there is no mesh that has any, at position 6"),
        (["f32[8@tp]"], "try a mesh that has it: set_current_mesh(mesh), or --mesh dp=2,tp=4 of a command"),
        (["f32[8@tp"], "position"),
        (["q7[8]"], "expected a dtype like f32, bf16 or i64 at position 0, got 'q7[8]'"),
        (["f32[4]", "-o", "x.pdf"], "known are .svg, .html, .htm, .txt"),
        (["f32[4]", "-o", "missing/x.svg"], "cannot be written"),
        (["f32[4]", "--nodes", "2"], "--nodes is for meshes"),
        (["types", "--mesh", "dp=2", "--highlight", "dp"], "--highlight is for meshes, and 'types' is none"),
        (["--mesh", "dp=2", "--names", "a"], "--names is for types, and the mesh is none"),
        (["(2,4):(8,1)", "--local"], "--local is for types, and '(2,4):(8,1)' is none"),
        (["--mesh", ",".join(f"a{at}=1" for at in range(65))], "at most 64 dims or axes, and here are 65"),
        (["all_gather S(x) -> R"], "S is written with its dim, like S(0)"),
        (["--mesh", "dp=2", "--highlight", "tp"], "no axis 'tp' to highlight; its axes are dp"),
        (["typs"], "'typs' is nothing that is drawn: write a type like 'f32[8, 16@tp]' or P"),
        (["(2,-4):(8,1)"], "a size of a layout is at least 1 and a stride at least 0, got size -4 with stride 1"),
        (["(2,4.5):(8,1)"], "whole numbers nested alike, got size 4.5 with stride 1"),
        (["(2,(2,2)):(8,1)"], "whole numbers nested alike, got size (2, 2) with stride 1"),
        (["(" * 300 + "2" + ")" * 300 + ":1"], "is no layout"),
        (["()"], "is no layout"),
        (["(2,4):(8,)"], "one stride per size"),
        (["(2,4):(8,,)"], "is no layout"),
        (["reduce P -> R"], "is no transition"),
        (["f32[4]", "--limit", "1"], "--limit"),
    ],
    ids=lambda one: " ".join(one) if isinstance(one, list) else "",
)
def test_wrong_usage_is_said_in_words(arguments, said, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = run(*arguments)
    assert result.exit_code == 2
    assert said in result.stderr
    assert "Traceback" not in result.output


def test_a_large_tensor_is_short(tmp_path):
    assert len(run("f32[4096, 4096]").stdout) < 3000
    assert len(run("f32[65536@(dp,tp), 4096]", "--mesh", "dp=4096,tp=16").stdout) < 20000


def test_pipes_get_no_colours(monkeypatch):
    assert "\x1b[" not in run("f32[4@tp]", "--mesh", "tp=2").stdout


def test_a_plan_is_drawn_beside_its_text(tmp_path):
    file = tmp_path / "plan.svg"
    arguments = ["f32[8, 8@tp] {dp: R}", "f32[8@tp, 8] {dp: R}", "--mesh", "dp=2,tp=2"]
    result = CliRunner().invoke(main, ["plan", *arguments, "-o", str(file)], prog_name="shardwise")
    assert result.exit_code == 0
    assert "all_to_all" in result.stdout
    svg = ElementTree.parse(file).getroot()
    assert any("all_to_all over tp" in (one.text or "") for one in svg.iter())
    refused = CliRunner().invoke(main, ["plan", *arguments, "-o", "plan.pdf"], prog_name="shardwise")
    assert refused.exit_code == 2
    assert "known are .svg" in refused.stderr


@pytest.mark.parametrize("words", [["--mesh", "dp=1048576"], ["--mesh", "dp=1024,tp=1024"]])
def test_a_limit_beyond_all_bounds_draws_as_much_as_there_is_room_for(words):
    started = time.process_time()
    found = CliRunner().invoke(main, ["draw", *words, "--limit", "1000000"])
    assert time.process_time() - started < 20, "it never ended"
    assert found.exit_code == 0, found.output
    lines = found.stdout.splitlines()
    assert max(map(cells, lines)) <= 100
    assert max(map(cells, lines)) > 60
