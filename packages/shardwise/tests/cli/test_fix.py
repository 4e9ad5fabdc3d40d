"""``check --diff`` and ``--fix``: what is proven is changed, what leaves a choice or wrong numbers is left."""

from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from shardwise.cli.runs.fix_search import Trial
from shardwise.cli.runs.fixing import ask, choices, told
from shardwise.diagnostics.finding import Finding
from shardwise.diagnostics.fix import Fix, Wrap
from shardwise.diagnostics.result import ExitCode, RunResult
from shardwise.diagnostics.source_location import SourceLocation

SETUP = """\
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh

import shardwise as spmd
from shardwise import I, R, S, V

dist.init_process_group()
mesh = init_device_mesh("cpu", (dist.get_world_size(),), mesh_dim_names=("tp",))
torch.manual_seed(0)
n, r = dist.get_world_size(), dist.get_rank()
W, U = torch.randn(16, 8), torch.randn(8, 16)
with spmd.set_current_mesh(mesh):
    w = spmd.assert_type(torch.nn.Parameter(W.chunk(n, 0)[r].clone()), {"tp": S(0)})
    u = spmd.assert_type(torch.nn.Parameter(U.chunk(n, 1)[r].clone()), {"tp": S(1)})
    scale = spmd.assert_type(torch.nn.Parameter(torch.ones(8)), {"tp": I})
    opt = torch.optim.SGD([w, u, scale], lr=0.1)
    x = spmd.assert_type(torch.randn(4, 8), {"tp": I})
"""
STEP = """\
    loss = y.square().mean()
    loss.backward()
    opt.step()
"""
MISSING_COPY = (
    SETUP
    + """\
    h = x * scale
    y = F.linear(F.gelu(F.linear(h, w)), u)
    y = spmd.all_reduce(y, "tp", src=V, dst=I)
"""
    + STEP
)
FIXED = 'y = F.linear(F.gelu(F.linear(spmd.convert(h, "tp", src=I, dst=R), w)), u)'


@pytest.mark.slow
@pytest.mark.processes
@pytest.mark.usefixtures("kept")
def test_a_fix_that_is_proven_is_shown_and_made(project):
    script = project.write(MISSING_COPY)
    shown = project.check(script, "--mesh", "tp=2", "--diff")
    assert shown.exit_code == 1
    assert "+    " + FIXED in shown.stdout
    assert "fix: convert(h" in shown.stdout
    assert Path(script).read_text() == MISSING_COPY
    done = project.check(script, "--mesh", "tp=2", "--fix")
    assert done.exit_code == 0
    assert FIXED in Path(script).read_text()
    assert project.check(script, "--mesh", "tp=2").exit_code == 0


@pytest.mark.processes
@pytest.mark.usefixtures("kept")
def test_numbers_are_compared_on_the_mesh_that_the_program_makes(project):
    two = MISSING_COPY.replace("(dist.get_world_size(),)", "(2,)").replace("dist.get_world_size()", "mesh.size()")
    script = project.write(two.replace("dist.get_rank()", "mesh.get_local_rank()"))
    done = project.check(script, "--fix")
    assert done.exit_code == 0, done.stdout
    assert "after it the types are clean, and verify finds the numbers of one rank" in done.stdout


@pytest.mark.processes
@pytest.mark.usefixtures("kept")
def test_it_is_said_why_numbers_could_not_be_compared(project):
    script = project.write(MISSING_COPY + '    assert n > 1, "only one rank"\n')
    shown = project.check(script, "--mesh", "tp=2", "--diff")
    assert "numbers could not be compared\n    the run on one rank does not come to its end (" in shown.stdout
    assert "AssertionError: only one rank" in shown.stdout


def test_where_no_repair_is_an_edit_nothing_is_tried(project):
    program = SETUP + '    y = spmd.assert_type(torch.ones(2), {"tp": "R"})\n'
    script = project.write(program)
    done = project.check(script, "--mesh", "tp=2", "--fix")
    assert done.exit_code == 1, done.output
    assert "no fix:" in done.stdout
    assert Path(script).read_text() == program


def test_a_clean_program_needs_none(project):
    done = project.check_source(SETUP + "    y = x * scale\n", "--mesh", "tp=2", "--fix", typed=False)
    assert done.exit_code == 0
    assert "fix" not in done.stdout


@pytest.mark.parametrize("option", ["--diff", "--fix"])
def test_a_form_for_programs_has_no_fixes(project, option):
    done = project.check(project.write(MISSING_COPY), option, "--format", "json")
    assert done.exit_code == 2
    assert f"{option} is for people: leave out --format json" in done.stderr


def test_without_a_proof_the_fixes_are_a_choice():
    wrap = Wrap(SourceLocation(__file__, 1, 1, 0, 3), "all_reduce", '"tp"', "P", "R")
    fixes = tuple(Fix(f"all_reduce {number}", (wrap,)) for number in range(2))
    result = RunResult(findings=(Finding("SW112", "gelu needs complete values", wrap.location, fixes=fixes),))
    differs = "loss (train.py:7:1) differs from the run on one rank"
    tried = [
        Trial((fixes[0],), (), ExitCode.CLEAN, ExitCode.FINDINGS, differs),
        Trial((fixes[1],), (), ExitCode.FINDINGS),
    ]
    lines = list(told(result, tried, False, str(Path(__file__).parent)))
    assert lines == [
        "nothing is changed: 2 combinations of fixes tried",
        "  1 of them would leave the types clean and the numbers wrong",
        "    loss (train.py:7:1) differs from the run on one rank",
        "  1 of them would leave findings, or a program that does not run",
        "test_fix.py:1:1: SW112 leaves a choice:",
        "  all_reduce 0",
        "  all_reduce 1",
    ]


def test_it_is_said_that_no_repair_can_be_made_where_its_call_stands():
    wrap = Wrap(SourceLocation(__file__, 1, 1, 0, 3), "all_reduce", '"tp"', "P", "R")
    fix = Fix("all_reduce(h)", (wrap,))
    result = RunResult(findings=(Finding("SW112", "gelu needs complete values", wrap.location, fixes=(fix,)),))
    first, *_ = told(result, [], False, str(Path(__file__).parent))
    assert first == "nothing is changed: no repair can be made where its call stands"


@pytest.mark.parametrize("verified", [None, ExitCode.INCONCLUSIVE])
def test_it_is_said_that_numbers_could_not_be_compared(verified):
    wrap = Wrap(SourceLocation(__file__, 1, 1, 0, 3), "all_reduce", '"tp"', "P", "R")
    fix = Fix("all_reduce(h)", (wrap,))
    result = RunResult(findings=(Finding("SW112", "gelu needs complete values", wrap.location, fixes=(fix,)),))
    why = "the run on the mesh does not come to its end: no"
    lines = list(told(result, [Trial((fix,), (), ExitCode.CLEAN, verified, why)], False, str(Path(__file__).parent)))
    assert lines == [
        "nothing is changed: 1 combination of fixes tried",
        "  1 of them would leave the types clean, but the numbers could not be compared",
        "    the run on the mesh does not come to its end: no",
        "test_fix.py:1:1: SW112 has one fix, which is not proven:",
        "  all_reduce(h)",
    ]


FIXES = (
    Fix("all_reduce(h) once", ()),
    Fix("convert(h) once", ()),
)


def tried(checked, verified, fix=0):
    return Trial((FIXES[fix],), (), checked, verified)


def test_a_person_may_choose_what_could_not_be_compared_and_nothing_that_is_wrong():
    clean, open_end, wrong = ExitCode.CLEAN, ExitCode.INCONCLUSIVE, ExitCode.FINDINGS
    trials = [tried(clean, open_end), tried(clean, wrong), tried(wrong, None), tried(clean, None, 1)]
    assert choices(trials) == [trials[0], trials[3]]
    assert choices([tried(clean, ExitCode.BROKEN)]) == []


@pytest.mark.parametrize(("answer", "chosen"), [("2\n", 1), ("0\n", None), ("\n", None), ("7\n1\n", 0)])
def test_the_choice_is_asked_for_on_the_terminal(answer, chosen):
    offered = [tried(ExitCode.CLEAN, None), tried(ExitCode.CLEAN, None, 1)]
    answers = []

    @click.command()
    def asking():
        answers.append(ask(offered))

    result = CliRunner().invoke(asking, input=answer)
    assert result.exit_code == 0, result.output
    assert "  1: all_reduce(h) once" in result.output
    assert "the numbers could not be compared" in result.output
    assert answers == [None if chosen is None else offered[chosen]]
