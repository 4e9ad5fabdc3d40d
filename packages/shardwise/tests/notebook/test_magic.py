"""``%%shardwise`` in IPython's shell: what is shown under a cell, and what a wrong line says."""

from __future__ import annotations

import asyncio
import re

import pytest
import torch

from shardwise.diagnostics.result import RunResult
from shardwise.notebook.cell_report import CellReport, CellValue
from shardwise.notebook.coloured_text import COLOURS
from shardwise.notebook.magic import bound_names

START = "import torch\nfrom shardwise import P, R, S, all_reduce, assert_type\n"


@pytest.fixture
def run(shell, monkeypatch):
    """Run a cell as a notebook does; what is displayed by the magic, or the text of a usage error."""
    shown = []
    monkeypatch.setattr("shardwise.notebook.magic.display", shown.append)

    def run(line, cell):
        shown.clear()
        result = shell.run_cell(f"%%shardwise {line}\n{START}{cell}\n")
        return shown[0] if shown else str(result.error_in_exec)

    return run


def test_findings_and_types_are_shown(run):
    report = run("--mesh dp=2,tp=2", 'h = assert_type(torch.ones(4, 8), {"dp": R, "tp": P})\ny = torch.relu(h)\nz = -h')
    text = repr(report)
    assert text.startswith(
        "SW112 partial-sum-in-nonlinear-op: relu needs complete values, but h is still a partial sum"
    )
    assert " --> cell:4:5" in text
    assert "4 | y = torch.relu(h)" in text
    assert "\nh  f32[4, 8] {dp: R, tp: P}\n" in text
    assert "\nz  f32[4, 8] {dp: R, tp: P}\n" in text
    assert "ipython-input" not in text
    assert text.splitlines()[-1] == "1 error; 2 operations checked on mesh dp=2, tp=2"
    page = report._repr_html_()
    assert "<td style='text-align:left'><code>h</code></td>" in page
    assert "relu needs complete values" in page


def test_an_ignore_comment_holds_a_finding_back(run):
    cell = 'h = assert_type(torch.ones(4), {"tp": P})\ntorch.relu(h)  # shardwise: ignore[SW112] h is zero elsewhere'
    assert repr(run("--mesh tp=2", cell)).endswith("clean; 1 operation checked, 1 finding held back on mesh tp=2")
    assert "SW112" in repr(run("--mesh tp=2", cell.replace("ignore[SW112]", "ignore[SW113]")))


NEEDLESS = "SW920 unneeded-ignore: nothing on this line is SW112: the ignore comment is not needed"


@pytest.mark.parametrize(
    ("cell", "found"),
    [
        ("torch.neg(h)  # shardwise: ignore[SW112] linear", [NEEDLESS]),
        ("torch.relu(h)  # shardwise: ignore[SW112] not linear", []),
        ("if h.ndim > 3:\n    torch.neg(h)  # shardwise: ignore[SW112] not reached", []),
        ("def neg(h):\n    return -h  # shardwise: ignore[SW112] in a function\nneg(h)", [NEEDLESS]),
        ("torch.neg(h)  # shardwise: ignore[SW112] linear\nraise ValueError", []),
        ("torch.neg(h)  # shardwise: noqa[SW112]", ["SW921 bad-ignore: shardwise knows no comment 'noqa'"]),
    ],
)
def test_an_ignore_comment_that_is_not_needed_is_told(run, shell, cell, found):
    transformers = list(shell.ast_transformers)
    told = repr(run("--mesh tp=2", f'h = assert_type(torch.ones(4), {{"tp": P}})\n{cell}'))
    assert told.count("SW92") == 2 * len(found)  # in its headline, and in the command that explains it
    assert all(one in told for one in found)
    assert shell.ast_transformers == transformers


def test_a_function_of_a_checked_cell_with_a_comment_is_called_by_other_cells(run, shell):
    run("--mesh tp=2", "def neg(h):\n    return -h  # shardwise: ignore[SW112] never needed")
    assert "clean" in repr(run("--mesh tp=2", 'neg(assert_type(torch.ones(4), {"tp": P}))'))
    assert shell.run_cell("neg(torch.ones(4))").success


def test_a_right_cell_is_clean_and_its_variables_stay(run, shell):
    report = run("--mesh tp=2", 'kept = assert_type(torch.ones(4), {"tp": R})')
    report = run("--mesh tp=2", "twice = kept * 2")
    assert "twice  f32[4] {tp: R}" in repr(report)
    assert repr(report).splitlines()[-1] == "clean; 1 operation checked on mesh tp=2"
    assert shell.user_ns["twice"].sum() == 8
    assert not torch.distributed.is_initialized()


def test_global_types_are_an_option(run):
    cell = 'x = assert_type(torch.ones(4, 8), {"tp": S(1)})\ny = torch.softmax(x, dim=1)'
    assert "SW40" not in repr(run("--mesh tp=2", cell))
    assert "SW40" in repr(run("--mesh tp=2 --global", cell))


def test_a_cell_that_raises_says_so_and_what_was_found(run):
    report = run("--mesh tp=2", 'h = assert_type(torch.ones(4), {"tp": P})\ntorch.relu(h)\n1 / 0')
    assert report.is_broken
    assert "SW112" in repr(report)


def test_a_cell_that_stops_before_anything_is_checked_says_that_it_stopped(run):
    report = run("--mesh tp=2", "1 / 0")
    assert repr(report) == "stopped on mesh tp=2"
    assert COLOURS["good"] not in report._repr_html_()


def test_source_is_shown_in_characters_of_one_width(run):
    page = run("--mesh tp=2", 'torch.relu(assert_type(torch.ones(4), {"tp": P}))')._repr_html_()
    (style,) = re.findall(r'<pre style="([^"]*)"', page)
    assert "monospace" in style
    assert "white-space:pre;" in style


def test_an_untyped_tensor_has_none(run):
    text = repr(run("--mesh tp=2", "x = torch.rand(2)"))
    assert "x  float32 [2] (no type)" in text
    assert "nothing checked" in text


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("", "say on which mesh: --mesh dp=2,tp=2, or mesh under [tool.shardwise] in pyproject.toml"),
        ("--help", "axes and sizes, outermost first, e.g. dp=2,tp=2"),
        ("--mash tp=2", "there is no --mash; did you mean --mesh?"),
        ("--mesh 'tp=2", 'no closing quotation in "--mesh \'tp=2"'),
        ("--mesh tp", "'tp' is not an axis with its size: write it like dp=2,tp=4"),
        ("--mesh tp=2 --rank 2", "rank 2 is not on the mesh tp=2: ranks go from 0 to 1"),
        ("--mesh tp=2 --glob", "there is no --glob; did you mean --global?"),
    ],
)
def test_a_wrong_line_is_refused(run, line, said):
    assert said in run(line, "")


def test_names_and_types_are_escaped():
    page = CellReport(RunResult(checked_ops=1, mesh="<b>"), (CellValue("x", "<script>"),))._repr_html_()
    assert "<script>" not in page
    assert "<b>" not in page


def test_the_names_that_a_cell_binds():
    source = "a, (b, *c) = f()\nfor d in e: pass\nwith g as h: i: int = 3\ndef j():\n    k = 1\n[l for l in m]\na = 2"
    assert bound_names(source) == ["a", "b", "c", "d", "h", "i"]
    assert bound_names("x = (") == []


def test_the_project_says_what_the_line_leaves_open(run, tmp_path, monkeypatch):
    (tmp_path / "pyproject.toml").write_text('[tool.shardwise]\nmesh = "tp=2"\ntypes = "global"\n')
    monkeypatch.chdir(tmp_path)
    cell = 'x = assert_type(torch.ones(4, 8), {"tp": S(1)})\ny = torch.softmax(x, dim=1)'
    assert "SW40" in repr(run("", cell))
    assert "clean; 1 operation checked on mesh tp=4" in repr(run("--mesh tp=4", "y = -assert_type(torch.ones(2), R)"))


def test_a_cell_that_raises_is_one_for_the_notebook_and_one_with_findings_is_none(shell, run):
    found = shell.run_cell(f"%%shardwise --mesh tp=2\n{START}torch.relu(assert_type(torch.ones(2), {{'tp': P}}))\n")
    assert found.success
    raised = shell.run_cell("%%shardwise --mesh tp=2\n1 / 0\n")
    assert str(raised.error_in_exec) == "the cell has raised; what is above was found until then"
    assert raised.error_in_exec._render_traceback_() == [str(raised.error_in_exec)]


def test_a_cell_that_awaits_is_told_that_it_cannot_where_a_loop_runs_already(run):
    cell = "import asyncio\nawait asyncio.sleep(0)\nx = assert_type(torch.ones(2), {'tp': R})"

    async def in_a_notebook():
        return run("--mesh tp=2", cell)

    assert "a checked cell cannot await" in asyncio.run(in_a_notebook())
    assert "x  f32[2] {tp: R}" in repr(run("--mesh tp=2", cell))
