"""The pytest plugin: what a mark does to a test, what a wrong mark says, and what it costs without one."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from shardwise.testing.options import options_of

from .conftest import PLUGIN, plugin_options

WRONG = """
@pytest.mark.spmd(mesh="dp=2,tp=2")
def test_mlp():
    h = assert_type(torch.ones(4, 8), {"dp": S(0), "tp": P})
    torch.relu(h)
"""
RIGHT = """
@pytest.mark.spmd(mesh="dp=2,tp=2")
def test_mlp():
    h = assert_type(torch.ones(4, 8), {"dp": S(0), "tp": P})
    torch.relu(all_reduce(h, "tp", dst=R))
"""


def test_findings_are_the_failure_and_nothing_else_is_shown(spmd_project):
    result = spmd_project.run_source(WRONG)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "SW112 partial-sum-in-nonlinear-op: relu needs complete values, but h is still a partial sum over tp",
            "*--> test_it.py:7:5",
            "*torch.relu(h)",
            '*= help: all_reduce(h, "tp", src=P, dst=R) before relu*',
            "1 error in 1 line; 1 operation checked on mesh dp=2, tp=2",
        ]
    )
    assert "block.py" not in result.stdout.str()
    assert "Traceback" not in result.stdout.str()


def test_a_right_test_passes(spmd_project):
    spmd_project.run_source(RIGHT).assert_outcomes(passed=1)


@pytest.mark.parametrize(
    ("comment", "settings", "outcome"),
    [
        ("  # shardwise: ignore[SW112] h is zero elsewhere", "", "passed"),
        ("  # shardwise: ignore[SW113] of another kind", "", "failed"),
        ("", '[tool.shardwise.per-file-ignores]\n"test_*.py" = ["SW112"]\n', "passed"),
        ("", '[tool.shardwise.severity]\nSW112 = "warning"\n', "passed"),
        ("", '[tool.shardwise]\nignore = ["SW113"]\n', "failed"),
    ],
)
def test_what_a_comment_or_the_project_holds_back_fails_no_test(spmd_project, comment, settings, outcome):
    spmd_project.pytester.makepyprojecttoml(settings)
    result = spmd_project.run_source(WRONG.replace("torch.relu(h)", f"torch.relu(h){comment}"))
    result.assert_outcomes(**{outcome: 1})


def test_findings_of_one_cause_are_one(spmd_project):
    result = spmd_project.run_source(f"{WRONG}    torch.sigmoid(h)\n    torch.tanh(h)\n")
    result.stdout.fnmatch_lines(["SW112 *; the same at 2 more places", "1 error in 3 lines; *"])
    both = WRONG.replace('"dp=2,tp=2"', '"dp=2,tp=2", expect=["SW112", "SW115"]').replace("(4, 8)", "(())")
    both = both.replace('"dp": S(0)', '"dp": R')
    spmd_project.run_source(f"{both}    h.item()\n").assert_outcomes(passed=1)
    spmd_project.run_source(both).assert_outcomes(failed=1)


def test_a_test_without_the_mark_is_not_checked(spmd_project):
    unmarked = WRONG.replace('@pytest.mark.spmd(mesh="dp=2,tp=2")', "")
    spmd_project.run_source(unmarked.replace('{"dp": S(0), "tp": P}', "{}")).assert_outcomes(passed=1)


def test_nothing_checked_fails(spmd_project):
    result = spmd_project.run_source('@pytest.mark.spmd(mesh="tp=2")\ndef test_it():\n    torch.ones(2) + 1\n')
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["SW911 nothing-checked: *"])


def test_global_types_are_asked_for_by_the_mark(spmd_project):
    source = """
@pytest.mark.spmd(mesh="tp=2", global_types={global_types})
def test_softmax():
    x = assert_type(torch.ones(4, 8), {{"tp": S(1)}})
    torch.softmax(x, dim=1)
"""
    spmd_project.run_source(source.format(global_types=False)).assert_outcomes(passed=1)
    result = spmd_project.run_source(source.format(global_types=True))
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["SW40*"])


def test_strict_asks_for_every_type(spmd_project):
    source = """
@pytest.mark.spmd(mesh="tp=2", strict={strict})
def test_sum():
    (assert_type(torch.ones(4), {{"tp": R}}) * 2) + torch.rand(4)
"""
    spmd_project.run_source(source.format(strict=False)).assert_outcomes(passed=1)
    spmd_project.run_source(source.format(strict=True)).assert_outcomes(failed=1)


def test_expected_findings_pass_and_a_missing_one_fails(spmd_project):
    expecting = WRONG.replace('tp=2"', 'tp=2", expect="SW112"')
    spmd_project.run_source(expecting).assert_outcomes(passed=1)
    result = spmd_project.run_source(WRONG.replace('tp=2"', 'tp=2", expect="SW113"'))
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["expected SW113, found SW112 in 1 checked operation", "SW112 *"])


def test_an_exception_keeps_its_traceback_and_carries_the_findings(spmd_project):
    result = spmd_project.run_source(WRONG + "    assert h.sum() == 7\n")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["E *assert*", "E *before it shardwise has found:", "E *SW112 *"])


def test_a_call_that_is_wrong_whatever_the_types_are_is_a_finding(spmd_project):
    result = spmd_project.run_source(
        '@pytest.mark.spmd(mesh="tp=2")\ndef test_it():\n    assert_type(torch.ones(2), {"pp": R})\n'
    )
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["SW*pp*"])
    assert ".py:" not in result.stdout.str().replace("test_it.py:", "")


@pytest.mark.parametrize(
    ("mark", "said"),
    [
        ("", "*needs a mesh: @pytest.mark.spmd(mesh='dp=2,tp=2'), or mesh under*"),
        ("mesh='dp'", "*'dp' is not an axis with its size: write it like dp=2,tp=4*"),
        ("mesh='dp=0'", "*axis dp has size '0', which is not a number of ranks*"),
        ("mesh=4", "*a mesh is a text or a mapping from names to sizes, got 4*"),
        ("mesh='dp=2', rank=1", "*has no option rank=1: did you mean ranks?*"),
        ("mesh='dp=2', ranks=2", "*rank 2 is not on the mesh dp=2: ranks go from 0 to 1*"),
        ("mesh='dp=2', ranks='corner'", "*ranks is a rank, a list of ranks, 'corners' or 'all', got 'corner'*"),
        ("mesh='dp=2', ranks=[]", "*ranks is empty: name some of 0 to 1, or 'all'*"),
        ("mesh='dp=2', strict='no'", "*strict is True or False, got 'no'*"),
        ("mesh='dp=2', partials='all'", "*partials is 'infer' or 'explicit', got 'all'*"),
        ("mesh='dp=2', expect='SW1122'", "*expect='SW1122' is no code of a finding: did you mean SW112*"),
        ("'dp=2', 4", "*takes one argument without a name, the mesh, got ('dp=2', 4)*"),
    ],
)
def test_a_wrong_mark_names_itself_the_value_and_what_was_expected(spmd_project, mark, said):
    result = spmd_project.run_source(f"@pytest.mark.spmd({mark})\ndef test_it():\n    pass\n")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*test_it.py::test_it: the mark spmd*"])
    result.stdout.fnmatch_lines([said])
    assert "options.py" not in result.stdout.str()


def test_marks_of_class_and_test_are_one(spmd_project):
    source = """
@pytest.mark.spmd(mesh="tp=2", strict=True)
class TestSum:
    def test_inherits(self):
        (assert_type(torch.ones(4), {"tp": R}) * 2) + torch.rand(4)

    @pytest.mark.spmd(strict=False)
    def test_overrides(self, spmd_mesh):
        assert spmd_mesh.mesh_dim_names == ("tp",)
        (assert_type(torch.ones(4), {"tp": R}) * 2) + torch.rand(4)
"""
    spmd_project.run_source(source).assert_outcomes(passed=1, failed=1)


def test_parametrised_tests_are_checked_one_by_one(spmd_project):
    source = """
@pytest.mark.spmd(mesh="tp=2")
@pytest.mark.parametrize("type", [R, P])
def test_relu(type):
    torch.relu(assert_type(torch.ones(4), {"tp": type}))

@pytest.mark.parametrize("size", [pytest.param(n, marks=pytest.mark.spmd(mesh=f"tp={n}")) for n in (2, 4)])
def test_sizes(size, spmd_mesh):
    assert spmd_mesh.size() == size
    torch.relu(assert_type(torch.ones(4), {"tp": R}))
"""
    spmd_project.run_source(source).assert_outcomes(passed=3, failed=1)


def test_a_fixture_may_use_the_mesh(spmd_project):
    source = """
@pytest.fixture
def x(spmd_mesh):
    return assert_type(torch.ones(4), {"tp": P})

@pytest.mark.spmd(mesh="tp=2")
def test_it(x):
    torch.relu(x)
"""
    result = spmd_project.run_source(source)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["SW112 *"])


ASYNC = """
@pytest.mark.asyncio
@pytest.mark.spmd(mesh="tp=2", ranks={ranks})
@pytest.mark.parametrize("type", [R, P])
async def test_it(type, spmd_mesh):
    import asyncio
    x = assert_type(torch.ones(4), {{"tp": type}})
    await asyncio.sleep(0)
    torch.relu(x)
"""


@pytest.mark.parametrize("ranks", [0, [0, 1], "all"])
def test_coroutines_are_checked(spmd_project, ranks):
    result = spmd_project.run_source(ASYNC.format(ranks=repr(ranks)))
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["SW112 *"])


def test_all_ranks_run_together_with_real_values(spmd_project):
    source = """
seen = []

@pytest.mark.spmd(mesh="dp=2,tp=2", ranks="all")
@pytest.mark.parametrize("scale", [2])
def test_it(spmd_mesh, scale):
    x = assert_type(torch.full((3,), float(spmd_mesh.get_rank())), {"dp": V, "tp": P})
    y = all_reduce(x, "tp", dst=R) * scale
    seen.append(spmd_mesh.get_rank())
    assert y[0] == {0: 2, 1: 2, 2: 10, 3: 10}[spmd_mesh.get_rank()]

def test_seen():
    assert sorted(seen) == [0, 1, 2, 3]
"""
    spmd_project.run_source(source).assert_outcomes(passed=2)


def test_a_finding_of_some_ranks_says_which(spmd_project):
    source = """
@pytest.mark.spmd(mesh="tp=4", ranks="all")
def test_it(spmd_mesh):
    x = assert_type(torch.ones(4), {"tp": P})
    if spmd_mesh.get_rank() in (1, 2):
        torch.relu(x)
    all_reduce(x, "tp", dst=R)
"""
    result = spmd_project.run_source(source)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["SW112 *", "*on ranks 1 and 2 only"])


def test_ranks_that_hang_fail_with_who_waits_for_what(spmd_project):
    source = """
@pytest.mark.spmd(mesh="tp=2", ranks="all")
def test_it(spmd_mesh):
    x = assert_type(torch.ones(4), {"tp": P})
    if spmd_mesh.get_rank() == 0:
        all_reduce(x, "tp", dst=R)
"""
    result = spmd_project.run_source(source)
    result.assert_outcomes(failed=1)
    told = ["rank 0 of 2 waits for what never comes", "rank 0 at test_it.py:*rank 1 never arrived"]
    result.stdout.fnmatch_lines(told)
    assert "world.py" not in result.stdout.str()


def test_what_a_rank_raises_is_shown_with_its_lines_and_its_rank(spmd_project):
    source = """
@pytest.mark.spmd(mesh="dp=2,tp=2", ranks="all")
def test_it(spmd_mesh):
    torch.neg(assert_type(torch.ones(4), {"dp": R, "tp": P}))
    assert spmd_mesh.get_rank() < 3
"""
    result = spmd_project.run_source(source, "--spmd-report", "spmd.json")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [">*assert spmd_mesh.get_rank() < 3", "E*on rank 3 (dp=1, tp=1)", "1 test on meshes, *"]
    )
    assert "world.py" not in result.stdout.str()


def test_listed_ranks_run_one_after_another(spmd_project):
    source = """
@pytest.mark.spmd(mesh="tp=4", ranks=[0, 3])
def test_it(spmd_mesh):
    x = assert_type(torch.ones(4), {"tp": P})
    if spmd_mesh.get_rank() == 3:
        torch.relu(x)
    torch.neg(x)
"""
    result = spmd_project.run_source(source)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["SW112 *", "*on rank 3 only"])


def test_the_mesh_of_several_ranks_is_not_for_fixtures(spmd_project):
    source = """
@pytest.fixture
def size(spmd_mesh):
    return spmd_mesh.size()

@pytest.mark.spmd(mesh="tp=2", ranks="all")
def test_it(size):
    pass
"""
    result = spmd_project.run_source(source)
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*spmd_mesh is each rank's own where several ranks are run*"])


def test_the_worlds_run_a_function_with_a_mesh(spmd_project):
    source = """
import torch.distributed as dist

def total():
    x = torch.tensor([dist.get_rank()])
    dist.all_reduce(x)
    return x.item(), current_mesh_names()

def test_in_process(spmd_in_process_world):
    came = spmd_in_process_world("dp=2,tp=2").run(total)
    assert [total for total, _ in came] == [6] * 4
    assert set(came[0][1]) == {"dp", "tp"}

def test_fake(spmd_fake_world):
    world = spmd_fake_world("tp=4", rank=3)
    assert (world.size, world.ranks) == (4, (3,))
    assert world.run(total)[0][0] == 3

def test_rank(spmd_in_process_world):
    spmd_in_process_world("tp=4", rank=3)

@pytest.mark.spmd(mesh="tp=2")
def test_both(spmd_in_process_world):
    pass
"""
    result = spmd_project.run_source(source)
    result.assert_outcomes(passed=2, failed=1, errors=1)
    result.stdout.fnmatch_lines(["*spmd_in_process_world starts ranks of its own*", "*rank=3 is for the fake world*"])


@pytest.mark.processes
def test_one_test_runs_in_all_three_worlds(spmd_project):
    source = """
import torch.distributed as dist

def test_it(spmd_world):
    assert set(spmd_world("tp=2").run(dist.get_world_size)) == {2}
"""
    spmd_project.run_source(source).assert_outcomes(passed=3)


@pytest.mark.slow
@pytest.mark.processes
def test_what_a_mesh_computes_is_compared_with_one_device_inside_and_outside_of_a_checked_test(spmd_project):
    source = """
from shardwise.testing import assert_same_on_one_device

def right(x):
    y = assert_type(x, {"tp": R})
    return all_reduce(convert(y, "tp", src=R, dst=P), "tp", dst=I).square().sum()

def wrong(x):
    return all_reduce(reinterpret(assert_type(x, {"tp": R}), "tp", src=R, dst=P), "tp", dst=I).square().sum()

@pytest.mark.spmd(mesh="tp=2")
@pytest.mark.parametrize("fn", [right, wrong])
def test_inside(fn):
    y = assert_type(torch.ones(4), {"tp": R}) * 2
    assert_same_on_one_device(fn, torch.arange(1., 5.).requires_grad_())
    assert (y + 1).sum() == 12

@pytest.mark.parametrize("fn", [right, wrong])
def test_outside(fn):
    verdict = assert_same_on_one_device(fn, torch.arange(1., 5.).requires_grad_(), mesh={"tp": 2})
    assert verdict.numbers.gradients == 1

def test_no_mesh():
    assert_same_on_one_device(right)
"""
    result = spmd_project.run_source(source)
    result.assert_outcomes(passed=2, failed=3)
    result.stdout.fnmatch_lines(["*DifferenceError*", "*differs from the run on one rank*"])
    result.stdout.fnmatch_lines(["*assert_same_on_one_device needs a mesh: mesh='dp=2,tp=2'*"])


def test_the_report_has_every_checked_test(spmd_project):
    result = spmd_project.run_source(WRONG + RIGHT.replace("test_mlp", "test_right"), "--spmd-report", "out/spmd.json")
    result.stdout.fnmatch_lines(
        [
            "*= shardwise =*",
            "2 tests on meshes, * operations checked",
            "  SW112 partial-sum-in-nonlinear-op: 1 finding",
            "written to out*spmd.json",
        ]
    )
    written = json.loads((spmd_project.folder / "out" / "spmd.json").read_text())
    assert written["schema"] == "shardwise.tests/1"
    assert written["failed"] == 1
    assert written["codes"] == {"SW112": 1}
    assert [(one["test"], one["outcome"], one["result"]["exit_code"]) for one in written["tests"]] == [
        ("test_it.py::test_mlp", "failed", 1),
        ("test_it.py::test_right", "passed", 0),
    ]


def test_a_report_that_cannot_be_written_is_said(spmd_project):
    result = spmd_project.run_source(RIGHT, "--spmd-report", "test_it.py/spmd.json")
    result.stdout.fnmatch_lines(["cannot write test_it.py*spmd.json: *"])
    assert result.ret == pytest.ExitCode.USAGE_ERROR


def test_the_project_says_what_the_mark_leaves_out(spmd_project):
    toml = "[tool.shardwise]\nmesh = 'tp=2'\ntypes = 'global'\n"
    (spmd_project.folder / "pyproject.toml").write_text(toml)
    source = """
@pytest.mark.spmd{mark}
def test_softmax(spmd_mesh):
    assert spmd_mesh.size() == 2
    torch.softmax(assert_type(torch.ones(4, 8), {{"tp": S(1)}}), dim=1)
"""
    spmd_project.run_source(source.format(mark="")).assert_outcomes(failed=1)
    spmd_project.run_source(source.format(mark="(global_types=False)")).assert_outcomes(passed=1)


@pytest.mark.nightly
@pytest.mark.processes
def test_the_report_gathers_the_workers_of_xdist(spmd_project):
    many = "".join(WRONG.replace("test_mlp", f"test_{n}") for n in range(4))
    result = spmd_project.run_source(many, "-n", "2", "--spmd-report", "spmd.json")
    result.assert_outcomes(failed=4)
    result.stdout.fnmatch_lines(["4 tests on meshes, *"])
    assert len(json.loads((spmd_project.folder / "spmd.json").read_text())["tests"]) == 4


def test_a_unittest_under_pytest_may_have_the_mark(spmd_project):
    source = """
import unittest

class TestSum(unittest.TestCase):
    @pytest.mark.spmd(mesh="tp=2")
    def test_wrong(self):
        torch.relu(assert_type(torch.ones(4), {"tp": P}))

    @pytest.mark.spmd(mesh="tp=2", ranks="all")
    def test_right(self):
        self.assertEqual(all_reduce(assert_type(torch.ones(1), {"tp": P}), "tp", dst=R).item(), 2)
"""
    result = spmd_project.run_source(source)
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["SW112 *"])


@pytest.mark.processes
def test_a_project_without_marks_pays_no_import_of_torch(tmp_path):
    (tmp_path / "test_it.py").write_text("import sys\n\ndef test_it():\n    assert 'torch' not in sys.modules\n")
    command = [sys.executable, "-m", "pytest", *plugin_options(), "-p", "no:cacheprovider", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert "1 passed" in done.stdout, done.stdout


def test_the_package_brings_the_plugin():
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())
    assert project["project"]["entry-points"]["pytest11"] == {"shardwise": PLUGIN}


def test_corners_are_the_first_and_last_ranks_of_each_axis():
    assert options_of("dp=3,tp=3", ranks="corners").ranks == (0, 2, 6, 8)
    assert options_of("tp=2", ranks="corners").ranks == (0, 1)
