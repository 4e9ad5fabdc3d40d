"""``shardwise verify``: both verdicts, exit codes and forms, acceptance-tested on tiny projects."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from shardwise.cli.main import main
from shardwise.verifier.records.subject import filled

pytestmark = [pytest.mark.processes, pytest.mark.xdist_group("verify")]

HEAD = """\
import sys
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from shardwise import P, R, S, V, all_reduce, assert_type, checkpoint_value, reinterpret, set_current_mesh

def whole():
    return (torch.arange(32.0, device="cuda").view(8, 4) * 0.7).sin()

def share(mesh, axis="dp"):
    return whole().chunk(mesh[axis].size())[mesh.get_local_rank(axis)].contiguous()
"""
SCRIPT = """
dist.init_process_group("nccl")
mesh = init_device_mesh("cuda", (2,), mesh_dim_names=("dp",))
with set_current_mesh(mesh):
    x = assert_type(share(mesh), {"dp": S(0)})
    loss = reinterpret(x.square().sum(), "dp", src=V, dst=P)
    total = checkpoint_value("total", all_reduce(loss, "dp", src=P, dst=R))
print("the total is", total.item())
dist.destroy_process_group()
"""


class Verifying:
    def __init__(self, project):
        self.project = project

    def write(self, source, name="train.py"):
        return self.project.write(HEAD + source, name)

    def __call__(self, *words):
        return CliRunner().invoke(main, ["verify", *words])

    def source(self, source, *words):
        return self(self.write(source), "--mesh", "dp=2", *words)


@pytest.fixture
def verifying(project):
    return Verifying(project)


def test_a_right_script_exits_0_with_both_verdicts_in_the_last_lines(verifying):
    result = verifying.source(SCRIPT)
    assert result.exit_code == 0, result.output
    types, numbers = result.stdout.splitlines()[-2:]
    assert types.startswith("types:   clean; ")
    assert numbers == "numbers: clean; 2 tensors equal to the run on one rank"


def test_wrong_numbers_exit_1_and_show_the_source(verifying):
    wrong = HEAD.replace("[mesh.get_local_rank(axis)]", "[0]") + SCRIPT
    result = verifying(verifying.project.write(wrong), "--mesh", "dp=2")
    assert result.exit_code == 1
    lines = result.stdout.splitlines()
    assert lines[0] == "wrong numbers: share(mesh), as assert_type has it, differs from the run on one rank"
    assert lines[1].strip().startswith("--> train.py:16:9")
    assert '16 |     x = assert_type(share(mesh), {"dp": S(0)})' in lines
    assert "   = claim: f32[4@dp, 4]" in lines
    assert any("rank 1 (dp=1) has" in line and "one rank has" in line for line in lines)
    assert lines[-2].startswith("types:   clean; ")
    assert lines[-1].startswith("numbers: 2 disagreements; ")


def test_wrong_types_exit_1_and_are_told_before_the_numbers(verifying):
    result = verifying.source(
        SCRIPT.replace("x.square().sum()", "x.square().sum() + loss0").replace(
            "    loss =", '    loss0 = assert_type(torch.zeros(()) + 0.0 * x.sum().detach(), {"dp": P})\n    loss ='
        )
    )
    assert result.exit_code == 1
    assert result.stdout.startswith("SW1")
    assert result.stdout.splitlines()[-2].startswith("types:   1 error; ")


def test_the_report_as_json(verifying):
    wrong = HEAD.replace("[mesh.get_local_rank(axis)]", "[0]") + SCRIPT
    result = verifying(verifying.project.write(wrong), "--mesh", "dp=2", "--format", "json")
    report = json.loads(result.stdout)
    assert report["schema"] == "shardwise.verify/2"
    assert report["exit_code"] == result.exit_code == 1
    assert report["types"]["verdict"] == "clean"
    assert report["failure"] is None
    first = report["numbers"]["disagreements"][0]
    assert first["kind"] == "declared"
    assert first["place"]["line"] == 16
    assert (first["rank"], first["index"], first["whole_index"]) == (1, [0, 0], [4, 0])
    assert first["claim"] == "f32[4@dp, 4]"
    assert first["difference"]["count"] == first["difference"]["total"] // 2 == 16


def test_only_rank_0_of_the_mesh_is_heard(verifying):
    result = verifying(verifying.write(SCRIPT), "--mesh", "dp=2", "--format", "json")
    json.loads(result.stdout)


def test_arguments_are_filled_in_for_each_run(verifying):
    script = SCRIPT.replace("(2,)", "(int(sys.argv[1]),)") + "assert dist.is_initialized() or sys.argv[2] == '{x}'\n"
    script += "print(sys.argv[3])\n"
    result = verifying.source(script, "--", "{dp}", "{x}", "--n={world_size}")
    assert result.exit_code == 0, result.output


@pytest.mark.parametrize(
    ("word", "expected"),
    [("{dp}", "2"), ("--tp={tp},{world_size}", "--tp=3,6"), ("{other}", "{other}"), ('{"dp": 1}', '{"dp": 1}')],
)
def test_names_of_axes_in_braces_are_their_sizes(word, expected):
    assert filled(word, {"dp": 2, "tp": 3}) == expected


FUNCTIONS = """
def right(mesh):
    return all_reduce(reinterpret(assert_type(share(mesh), {"dp": S(0)}).sum(), "dp", src=V, dst=P), "dp", src=P, dst=R)

class Programs:
    @staticmethod
    def inside():
        print("hello")
        return assert_type(whole(), {"dp": R})
"""


@pytest.mark.parametrize(
    "name", ["functions_of_mine.py:right", "functions_of_mine:right", "functions_of_mine.py:Programs.inside"]
)
def test_a_function_is_verified_by_name(verifying, name):
    verifying.write(FUNCTIONS, "functions_of_mine.py")
    result = verifying(name, "--mesh", "dp=2")
    assert result.exit_code == 0, result.output
    assert "2 tensors equal to the run on one rank" in result.stdout


def test_a_module_is_verified(verifying):
    verifying.write(SCRIPT, "package/train.py")
    result = verifying("-m", "package.train", "--mesh", "dp=2")
    assert result.exit_code == 0, result.output


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["nowhere.py", "--mesh", "dp=2"], "the script nowhere.py does not exist"),
        (["nowhere.py:f", "--mesh", "dp=2"], "the script nowhere.py does not exist"),
        (["train.py:nothing", "--mesh", "dp=2"], "there is no function nothing in train.py"),
        (["no.such.module:f", "--mesh", "dp=2"], "there is no module no.such.module"),
        (["train.py:whole", "--mesh", "dp=2", "--", "3"], "takes no arguments from the command line"),
        (["train.py", "--mesh", "dp=100000"], "would start 100000 processes, more than 256"),
        (["train.py", "--mesh", "dp=1"], "has one rank: there is nothing to compare it with"),
        (["train.py"], "say on which mesh"),
        (["--mesh", "dp=2"], "say what to verify"),
        (["train.py", "--mesh", "dp=two"], "axis dp has size 'two'"),
        ([".", "--mesh", "dp=2"], "is a folder, not a script"),
    ],
)
def test_what_cannot_be_run_exits_2_and_says_why(verifying, words, said):
    verifying.write("")
    result = verifying(*words)
    assert result.exit_code == 2
    assert said in result.stderr
    assert "failure of shardwise itself" not in result.stderr


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("print(", "the run on one rank did not come to its end: SyntaxError"),
        ("sys.exit(1)", "it ended with sys.exit(1)"),
        ("sys.exit('no data')", "it ended with sys.exit('no data')"),
        ("1 / 0", "it raised ZeroDivisionError: division by zero"),
        ("dist.init_process_group(world_size=4)", "the script asks for a world of 4 ranks, but the check runs with 1"),
        ("if dist.get_rank() == 1: raise KeyError('x')", "rank 1 of 2 raised KeyError: 'x'"),
        ("import os, signal; dist.get_rank() == 1 and os.kill(os.getpid(), signal.SIGKILL)", "exit code -9"),
    ],
)
def test_a_program_that_fails_exits_2_and_says_where(verifying, source, said):
    result = verifying.source(source + "\n")
    assert result.exit_code == 2
    assert said in result.stdout
    assert result.stdout.splitlines()[-1] == "no verdict; train.py on mesh dp=2"


def test_the_last_words_of_a_program_that_exits_are_told(verifying):
    source = "import argparse\nparser = argparse.ArgumentParser()\nparser.parse_args(['--unknown'])\n"
    result = verifying.source(source)
    assert result.exit_code == 2
    assert "error: unrecognized arguments: --unknown" in result.stdout


def test_a_failure_as_json(verifying):
    result = verifying.source("1 / 0\n", "--format", "json")
    failure = json.loads(result.stdout)["failure"]
    assert failure["where"] == "on one rank"
    assert failure["place"]["line"] == 12
    assert "ZeroDivisionError" in failure["details"]


@pytest.mark.parametrize("ending", ["sys.exit()", "sys.exit(0)"])
def test_a_program_that_exits_with_success_has_ended_normally(verifying, ending):
    assert verifying.source(f"{SCRIPT}\n{ending}\n").exit_code == 0


def test_a_program_that_declares_nothing_exits_2(verifying):
    result = verifying.source("torch.ones(2) + 1\n")
    assert result.exit_code == 2
    assert "numbers: nothing was compared; say what tensors are with assert_type" in result.stdout


def test_the_package_of_a_module_sees_the_sizes_of_each_run(verifying):
    verifying.project.write("import sys\nSEEN = int(sys.argv[1])\n", "package/__init__.py")
    verifying.project.write(
        "import torch.distributed as dist\nfrom package import SEEN\n"
        "dist.init_process_group('gloo')\nassert SEEN == dist.get_world_size(), SEEN\n",
        "package/train.py",
    )
    result = verifying("-m", "package.train", "--mesh", "dp=2", "--", "{dp}")
    assert "nothing was compared" in result.stdout, result.output
