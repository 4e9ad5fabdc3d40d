"""``shardwise check``: verdicts and exit codes, acceptance-tested on tiny projects."""

from __future__ import annotations

import json

import pytest

CLEAN = """
with set_current_mesh(mesh):
    x = assert_type(torch.randn(6, 16, device="cuda"), {"dp": V, "tp": P})
    y = torch.relu(all_reduce(x, "tp", dst=R))
"""
BROKEN = """
with set_current_mesh(mesh):
    x = assert_type(torch.randn(6, 16), {"dp": V, "tp": P})
    y = torch.relu(x)
    z = torch.sigmoid(x * 2)
"""


def test_a_right_program_exits_0(project):
    result = project.check_source(CLEAN)
    assert result.exit_code == 0
    assert result.stdout.splitlines()[-1].startswith("clean; ")


def test_every_independent_mistake_is_reported_in_one_run_and_exits_1(project):
    result = project.check_source(BROKEN)
    assert result.exit_code == 1
    headlines = [line for line in result.stdout.splitlines() if line.startswith("SW")]
    assert [line.split(":")[0] for line in headlines] == ["SW112 partial-sum-in-nonlinear-op"] * 2
    assert " --> train.py:9:9" in result.stdout
    assert "\n9 |     y = torch.relu(x)\n" in result.stdout
    assert " --> train.py:10:9" in result.stdout
    assert result.stdout.splitlines()[-1].startswith("2 errors in 2 lines; ")


def test_uses_of_one_value_that_miss_the_same_step_are_one_finding(project):
    result = project.check_source(BROKEN.replace("x * 2", "x") + "    w = torch.tanh(x)\n")
    assert result.exit_code == 1
    (headline,) = [line for line in result.stdout.splitlines() if line.startswith("SW")]
    assert headline.endswith("; the same at 2 more places")
    assert result.stdout.count("^^^ non-linear in x") == 3
    assert '= help: x = all_reduce(x, "tp", src=P, dst=R) once, before them' in result.stdout
    assert result.stdout.splitlines()[-1].startswith("1 error in 3 lines; ")
    result = project.check("train.py", "--format", "github")
    assert result.stdout.count("::error ") == 3


LAYERS = """
from torch import nn

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = Norm()
    def forward(self, x):
        return self.norm(x)

class Norm(nn.Module):
    def forward(self, x):
        return torch.relu(x)

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(Block() for _ in range(48))
    def forward(self, x):
        for layer in self.layers:
            layer(x)

with set_current_mesh(mesh):
    Net()(assert_type(torch.randn(6, 16), {"dp": V, "tp": P}))
"""


def test_48_layers_with_one_mistake_are_one_finding_with_their_modules(project):
    result = project.check_source(LAYERS)
    assert len([line for line in result.stdout.splitlines() if line.startswith("SW")]) == 1
    said = "in modules layers.0.norm, layers.1.norm, layers.2.norm and 45 more, 48 times at this place"
    assert f"= note: {said}" in result.stdout
    (finding,) = json.loads(project.check("train.py", "--format", "json").stdout)["findings"]
    assert (finding["count"], finding["modules"][47]) == (48, "layers.47.norm")


def test_a_program_without_types_is_not_clean(project):
    result = project.check_source("import torch\ntorch.ones(2) + 1\n", typed=False)
    assert result.exit_code == 2
    assert "SW911 nothing-checked" in result.stdout


@pytest.mark.parametrize("ending", ["raise ValueError('no such batch')", "sys.exit(3)", "sys.exit('out of data')"])
def test_a_program_that_fails_exits_2_and_says_what_was_checked_until_then(project, ending):
    result = project.check_source(f"{CLEAN}\nimport sys\n{ending}\n")
    assert result.exit_code == 2
    line = next(line for line in result.stdout.splitlines() if line.startswith("SW910 script-error"))
    assert ("ValueError: no such batch" in line) if ending.startswith("raise") else ("SystemExit(" in line)
    assert line.endswith("checked operations")
    assert "--> train.py:12:" in result.stdout


def test_findings_before_a_crash_are_reported(project):
    result = project.check_source(f"{BROKEN}\nraise ValueError\n")
    assert result.exit_code == 1
    assert result.stdout.count("SW112 partial-sum-in-nonlinear-op: ") == 2
    assert "SW910 script-error: the program raised ValueError" in result.stdout


def test_a_finding_that_ends_the_program_is_told_once(project):
    other = 'init_device_mesh("cuda", (8,), mesh_dim_names=("ep",))\n'
    result = project.check_source(f"{other}{CLEAN}    all_reduce(y, 'ep', src=P, dst=R)\n")
    assert result.exit_code == 1
    assert [line.split()[0] for line in result.stdout.splitlines() if line.startswith("SW")] == ["SW902"]
    assert "= note: the program ends with this exception: what comes after it was not checked" in result.stdout
    assert "= help: with set_current_mesh(...): around this line, with the mesh that has 'ep'" in result.stdout


def test_what_is_advised_names_the_mesh_that_the_program_makes(project):
    made = 'from torch.distributed.device_mesh import init_device_mesh\ninit_device_mesh("cuda", (2, 4)'
    result = project.check_source(f'{made}, mesh_dim_names=("dp", "tp"))\n', typed=False)
    assert "shardwise verify train.py --mesh dp=2,tp=4 compares the numbers" in result.stdout


@pytest.mark.parametrize("ending", ["sys.exit()", "sys.exit(0)", "os._exit(0)"])
def test_a_program_that_exits_with_success_has_ended_normally(project, ending):
    result = project.check_source(f"{CLEAN}\nimport os, sys\n{ending}\n")
    assert result.exit_code == 0
    assert "clean; " in result.stdout


def test_the_traceback_shows_the_programs_own_frames(project):
    project.write("import torch\ndef helper():\n    return torch.nn.Linear(2, 2)(torch.ones(3))\n", "helpers.py")
    result = project.check_source("import helpers\nhelpers.helper()\n")
    assert result.exit_code == 2
    frames = [line for line in result.stderr.splitlines() if line.startswith("  File ")]
    assert len(frames) == 2
    assert "train.py" in frames[0]
    assert "helpers.py" in frames[1]
    assert "frames of torch and shardwise are left out; shardwise check --all shows them" in result.stderr
    assert "--> helpers.py:3:" in result.stdout
    assert "linear.py" in project.check("train.py", "--all").stderr


def test_a_script_that_does_not_parse_is_told_with_its_place(project):
    result = project.check_source("x = (1,\n", typed=False)
    assert result.exit_code == 2
    assert "SW910 script-error: the program raised SyntaxError: '(' was never closed" in result.stdout
    assert "--> train.py:1:5" in result.stdout


def test_an_error_of_usage_inside_the_program_is_a_finding_and_ends_it(project):
    result = project.check_source("from shardwise import MeshAxis\nMeshAxis.of('tp')\n")
    assert result.exit_code == 1
    assert "--> train.py:7:1" in result.stdout
    assert "the program ends with this exception: what comes after it was not checked" in result.stdout


def test_a_mesh_too_big_for_the_world_shows_the_arithmetic(project):
    result = project.check_source(CLEAN, "--world-size", "4")
    assert result.exit_code == 1
    assert "SW903 bad-mesh: a mesh of 2 x 4 = 8 ranks does not fit into a world of 4" in result.stdout
    assert "= help: shardwise check --world-size 8" in result.stdout


@pytest.mark.parametrize(
    "source",
    [
        "import multiprocessing\nmultiprocessing.Process(target=print).start()\n",
        "import os\nos.fork()\n",
        "import os\nos.execvp('echo', ['echo', 'gone'])\n",
    ],
    ids=["process", "fork", "exec"],
)
def test_a_program_that_starts_processes_is_told_what_to_check_instead(project, source):
    result = project.check_source(source)
    assert result.exit_code == 2
    assert "SW910 script-error: the program starts processes " in result.stdout
    assert "  = help: only this one is checked: check the function that one rank runs, or write" in result.stdout


@pytest.mark.parametrize("mean", [True, False], ids=["summed", "not summed"])
def test_a_program_that_spawns_its_ranks_is_checked_as_one_of_them(project, mean):
    step = "dist.all_reduce(model.weight.grad, op=dist.ReduceOp.AVG)" if mean else "pass"
    result = project.check_source(
        f"""
        import torch
        import torch.distributed as dist
        import torch.multiprocessing as mp
        from torch.nn.parallel import DistributedDataParallel

        def train(rank, world_size):
            dist.init_process_group("nccl", rank=rank, world_size=world_size)
            model = torch.nn.Linear(4, 1, bias=False)
            wrapped = DistributedDataParallel(model)
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            rows = torch.arange(32.0).view(8, 4).chunk(world_size)[rank]
            model(rows).mean().backward()
            {step}
            optimizer.step()

        if __name__ == "__main__":
            mp.spawn(train, args=(2,), nprocs=2)
        """,
        typed=False,
    )
    if mean:
        assert result.exit_code == 0, result.stdout
    else:
        assert result.exit_code == 1
        assert "SW608 gradient-not-summed: SGD.step takes the gradient of weight" in result.stdout
        assert "each of the 2 ranks steps with its own addend" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "say which script to check"),
        (["missing.py"], "the script missing.py does not exist"),
        (["."], "is a folder, not a script"),
        (["-m", "no.such.module"], "there is no module no.such.module that can be run"),
        (["train.py", "--lr", "3"], "has no option"),
        (["train.py", "--rank", "8"], "--rank 8 is not in a world of 8: ranks go from 0 to 7"),
        (["train.py", "--mesh", "tp=2", "--rank", "2"], "ranks go from 0 to 1"),
        (["train.py", "--mesh", "dp=2,tp=4", "--world-size", "6"], "has 2 x 4 = 8 ranks, but --world-size is 6"),
        (["train.py", "--mesh", "dp2"], "'dp2' is not an axis with its size"),
        (["train.py", "--mesh", "dp=two"], "axis dp has size 'two'"),
        (["train.py", "--mesh", "dp=0"], "axis dp has size '0'"),
        (["train.py", "--mesh", "dp=2,dp=2"], "axis dp is given twice"),
        (["train.py", "--world-size", "0"], "--world-size"),
        (["train.py", "--format", "xml"], "'text', 'json'"),
    ],
)
def test_wrong_usage_exits_2_and_says_what_is_wrong(project, arguments, words):
    project.write(CLEAN, typed=True)
    result = project.check(*arguments)
    assert result.exit_code == 2
    assert words in " ".join(result.stderr.split())
    assert result.stdout == ""


def test_a_failure_of_our_own_is_no_verdict(project, monkeypatch):
    monkeypatch.setattr("shardwise.cli.runs.asked_check.rendered", lambda *args: 1 / 0)
    result = project.check_source(CLEAN)
    assert result.exit_code == 2
    assert "a failure of shardwise itself" in result.stderr


def test_a_failure_of_our_own_during_the_run_is_not_blamed_on_the_program(project, monkeypatch):
    monkeypatch.setattr("shardwise.mesh.given.constant_type", {}.pop)
    result = project.check_source(CLEAN)
    assert result.exit_code == 2
    assert "(a failure of shardwise itself)" in result.stdout
    assert "given.py" in result.stderr


@pytest.mark.parametrize("call", ["all_reduce()", "torch.ones(2) @ torch.ones(3)", "torch.ones(2).view(3)"])
def test_a_wrong_call_is_the_programs_own_failure(project, call):
    result = project.check_source(f"{CLEAN}\n{call}\n")
    assert "SW910 script-error" in result.stdout
    assert "failure of shardwise" not in result.stdout


def test_json_alone_is_on_stdout(project):
    result = project.check_source("print('a word from the script')\n" + BROKEN, "--format", "json")
    report = json.loads(result.stdout)
    assert (result.exit_code, report["exit_code"], report["errors"]) == (1, 1, 2)
    assert report["script"] == "train.py"
    assert "a word from the script" in result.stderr


def test_what_the_script_prints_goes_to_stderr(project):
    result = project.check_source("print('a word from the script')\n" + CLEAN)
    assert "a word" in result.stderr
    assert "a word" not in result.stdout


def test_colour_is_asked_for_or_absent(project):
    project.write(BROKEN, typed=True)
    assert "\x1b[" not in project.check("train.py").stdout
    assert "\x1b[" in project.check("train.py", "--color", "always").stdout


def test_trace_logs_each_typed_operation(project, caplog):
    project.check_source(CLEAN, "--trace")
    assert "train.py:9  all_reduce(f32[6, 16] {dp: V, tp: P}) -> f32[6, 16] {dp: V, tp: R}" in caplog.messages


def test_a_missing_annotation_is_an_error_in_strict_mode_only(project):
    source = """
    with set_current_mesh(mesh):
        torch.relu(assert_type(torch.ones(2), {"dp": R, "tp": R})) + torch.randn(2)
    """
    assert project.check_source(source).exit_code == 0
    assert project.check("train.py", "--strict").exit_code == 1


@pytest.mark.parametrize("before", [("dp", "cp"), ("cp", "tp")], ids=str)
def test_axes_are_named_as_the_program_names_them_whatever_was_checked_before(project, before):
    for names in (before, ("cp", "tp")):
        source = f"""
            import torch
            from torch.distributed.device_mesh import init_device_mesh
            import shardwise as spmd
            with spmd.set_current_mesh(init_device_mesh("cpu", (2, 2), mesh_dim_names={names})):
                x = spmd.assert_type(torch.ones(2, 2), {{}}, spmd.PartitionSpec({names}, None))
            with spmd.set_current_mesh(init_device_mesh("cpu", (4,), mesh_dim_names=("ep",))):
                print(spmd.typeof(x))
        """
        result = project.check_source(source, "--global", "--mesh", f"{names[0]}=2,{names[1]}=2", typed=False)
    assert "@(cp,tp), 2]" in result.output
