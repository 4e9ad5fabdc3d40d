"""Does ``shardwise infer --write`` put types into the source that the check then holds the program to?"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import libcst as cst
import pytest
import torch
from click.testing import CliRunner
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper

from shardwise.cli.main import main
from shardwise.verifier.records.expressions import paths_to

pytestmark = [pytest.mark.processes, pytest.mark.usefixtures("warm_python")]

PROGRAMS = Path(__file__).parents[1] / "programs" / "unannotated" / "right"
GPT = Path(__file__).parents[4] / "examples" / "gpt"
ARGUMENTS = ("--", "--steps", "1", "--dp", "{dp}", "--tp", "{tp}")


def run(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "shardwise", *words]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300)


def report(folder: Path, *words: str) -> dict[str, Any]:
    done = run(folder, words[0], "--format", "json", *words[1:])
    assert done.stdout.startswith("{"), done.stderr
    return json.loads(done.stdout)  # type: ignore[no-any-return]


@pytest.mark.nightly
def test_a_program_with_groups_of_its_own_gets_types_and_is_clean(tmp_path):
    script = tmp_path / "raw_groups_3d.py"
    shutil.copy(PROGRAMS / script.name, script)
    before = script.read_text()
    mesh = ("--mesh", "dp=2,tp=2")
    shown = run(tmp_path, "infer", script.name, *mesh, "--diff")
    assert script.read_text() == before
    assert "+        assert_type(self.up, {DP: R, TP: S(0)})" in shown.stdout
    assert run(tmp_path, "infer", script.name, *mesh, "--write").returncode == 0
    after = script.read_text()
    assert [line for line in before.splitlines() if "model(" not in line] == [
        line for line in after.splitlines() if "model(" not in line and "assert_type" not in line
    ]
    checked = report(tmp_path, "check", script.name, *mesh)
    assert (checked["findings"], checked["coverage"]["typed_parameters"]) == ([], 12)
    again = run(tmp_path, "infer", script.name, *mesh, "--write")
    assert "nothing to write" in again.stdout
    assert script.read_text() == after


@pytest.mark.nightly
def test_what_a_wrapper_has_split_is_typed_by_the_wrapper(tmp_path):
    script = tmp_path / "fsdp1.py"
    shutil.copy(PROGRAMS / script.name, script)
    assert run(tmp_path, "infer", script.name, "--mesh", "dp=2", "--write").returncode == 0
    assert [line.strip()[:20] for line in script.read_text().splitlines() if "assert_type" in line] == [
        "from shardwise impor",
        "loss = nn.functional",
    ]
    assert report(tmp_path, "check", script.name, "--mesh", "dp=2")["verdict"] == "clean"


def test_paths_lead_to_a_parameter_before_it_is_wrapped_as_well_as_afterwards():
    block = nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 2))
    before = block[1].weight
    block[1] = checkpoint_wrapper(block[1])
    whole = torch.compile(nn.Sequential(block))
    ((path, inner, name),) = paths_to(whole, before)
    assert (path, inner) == ("._orig_mod[0][1].weight", ""), "what torch.compile gives has no numbered parts"
    assert dict(whole.named_parameters())[name] is before
    assert eval(f"whole{path}") is before


@pytest.mark.slow
def test_a_bug_is_found_in_what_has_been_written(tmp_path):
    script = tmp_path / "megatron_tp.py"
    source = (PROGRAMS / script.name).read_text()
    broken = source.replace("nn.functional.linear(Copy.apply(x), self.up", "nn.functional.linear(x, self.up", 1)
    assert broken != source
    script.write_text(broken)
    assert run(tmp_path, "infer", script.name, "--mesh", "tp=2", "--write").returncode == 0
    checked = report(tmp_path, "check", script.name, "--mesh", "tp=2")
    assert checked["findings"], checked


BY_HAND = """
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
shift = torch.nn.Parameter(torch.tensor(0.5))
head = torch.nn.Linear(3, 3)
data, targets = torch.randn(3, 8, 4), torch.randint(0, 3, (3, 8))

def train(weights, params):
    parameters = [*weights, *params.values(), shift, *head.parameters()]
    for x, y in zip(data, targets):
        x, y = x.chunk(world)[rank], y.chunk(world)[rank]
        for weight in weights:
            x = torch.tanh(x @ weight)
        loss = torch.nn.functional.cross_entropy(head(x * params["scale"] + shift), y)
        loss.backward()
        with torch.no_grad():
            for p in parameters:
                dist.all_reduce(p.grad)
                p -= 0.1 * p.grad / world
                p.grad = None

def main():
    torch.manual_seed(0)
    weights = []
    for rows, columns in ((4, 6), (6, 5), (5, 3)):
        weights.append(torch.nn.Parameter(torch.randn(rows, columns)))
    params = {"scale": torch.nn.Parameter(torch.ones(3))}
    train(weights, params)

main()
"""


@pytest.mark.slow
def test_parameters_that_no_module_has_get_types_where_the_program_names_them(tmp_path):
    """A list that a loop fills, a dict, and a parameter beside a module; the bug is found where a sum is left out."""
    script = tmp_path / "train.py"
    script.write_text(BY_HAND)
    told = run(tmp_path, "infer", script.name, "--mesh", "dp=2", "--write")
    assert "left as they are" not in told.stdout
    after = script.read_text()
    assert "    assert_type(weights, {dist.group.WORLD: R})\n" in after
    assert "    assert_type(params['scale'], {dist.group.WORLD: R})\n    train(weights, params)\n" in after
    assert "assert_type(shift, {dist.group.WORLD: R})" in after
    checked = report(tmp_path, "check", script.name, "--mesh", "dp=2")
    assert (checked["verdict"], checked["findings"]) == ("clean", [])
    script.write_text(after.replace("                dist.all_reduce(p.grad)\n", ""))
    found = report(tmp_path, "check", script.name, "--mesh", "dp=2")
    assert [one["code"] for one in found["findings"]] == ["SW113"]


@pytest.mark.slow
def test_other_peoples_files_are_left_alone_and_open_choices_are_named(tmp_path):
    mine, theirs = tmp_path / "mine", tmp_path / "theirs"
    mine.mkdir()
    theirs.mkdir()
    library = theirs / "layers.py"
    library.write_text(
        "import torch\n\nclass Scale(torch.nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.by = torch.nn.Parameter(torch.arange(3.0))\n\n"
        "    def forward(self, x):\n        return x * self.by\n"
    )
    before = library.read_text()
    (mine / "train.py").write_text(
        f"import sys\nsys.path.append({str(theirs)!r})\nimport torch\nimport torch.distributed as dist\n"
        "from torch.distributed.device_mesh import init_device_mesh\nfrom layers import Scale\n"
        "dist.init_process_group('gloo')\n"
        "mesh = init_device_mesh('cpu', (dist.get_world_size(),), mesh_dim_names=('data',))\n"
        "torch.manual_seed(0)\nmodel = Scale()\nmodel.by.requires_grad_(False)\n"
        "x = torch.randn(2, 3)\nprint(model(x))\n"
    )
    done = run(mine, "infer", "train.py", "--mesh", "dp=2", "--write")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "{data: R or I}" in done.stdout
    assert "  over data: by\n" in done.stdout
    assert library.read_text() == before
    assert 'model = Scale()\nassert_type(model.by, {"data": R})\n' in (mine / "train.py").read_text()
    assert run(mine, "check", "train.py", "--mesh", "dp=2").returncode == 0


BUFFERS = """
import torch
import torch.distributed as dist
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("scale", torch.arange(4.0))
        self.norm = nn.BatchNorm1d(4)

    def forward(self, x):
        return self.norm(x) * self.scale


dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
model = Model()
batch = {"x": torch.randn(8, 4).chunk(world)[rank], "y": torch.ones(8, 4).chunk(world)[rank] * 3}
nn.functional.mse_loss(model(batch["x"]), batch["y"]).backward()
"""


@pytest.mark.slow
def test_buffers_are_written_and_statistics_of_a_rank_are_not(tmp_path):
    (tmp_path / "train.py").write_text(BUFFERS)
    done = run(tmp_path, "infer", "train.py", "--mesh", "dp=2", "--write")
    after = (tmp_path / "train.py").read_text()
    assert "assert_type([self.norm.weight, self.norm.bias, self.scale], {dist.group.WORLD: R})\n" in after, done.stdout
    assert after.count("assert_type(batch") == 2
    assert "running_mean" not in after
    assert "assert_type(batch['x'], {dist.group.WORLD: S(0)})\n" in after
    assert report(tmp_path, "check", "train.py", "--mesh", "dp=2")["findings"] == []


WRAPPED_WITHIN = """
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.bottom = nn.Sequential(nn.Linear(4, 4), nn.ReLU())

    def forward(self, x, weight=None):
        y = self.bottom(x)
        return y if weight is None else y * weight


dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
model = Model()
model.bottom = DistributedDataParallel(model.bottom)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for step in range(2):
    x, weight = torch.randn(8, 4).chunk(world)[rank], torch.rand(8, 1).chunk(world)[rank]
    model(x, weight if step == 0 else None).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
"""


@pytest.mark.slow
def test_what_is_written_can_be_run_where_parts_are_wrapped_and_arguments_left_out(tmp_path):
    (tmp_path / "train.py").write_text(WRAPPED_WITHIN)
    done = run(tmp_path, "infer", "train.py", "--mesh", "dp=2", "--write")
    after = (tmp_path / "train.py").read_text()
    parts = "[model.bottom.module[0].weight, model.bottom.module[0].bias]"
    wrapped = "model.bottom = DistributedDataParallel(model.bottom)\n"
    assert f"{wrapped}assert_type({parts}, {{dist.group.WORLD: R}})\n" in after
    assert "1 of Model: it is no tensor in some calls" in done.stdout
    checked = report(tmp_path, "check", "train.py", "--mesh", "dp=2")
    assert (checked["findings"], checked["coverage"]["typed_parameters"]) == ([], 2)


class Stripped(cst.CSTTransformer):
    """The source without a single annotation."""

    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.BaseExpression:
        function = updated_node.func
        name = function.attr.value if isinstance(function, cst.Attribute) else getattr(function, "value", "")
        return updated_node.args[0].value if name == "assert_type" else updated_node


DECLARED = """
import json, sys
import torch
sys.path.insert(0, sys.argv[1])
from shardwise import set_current_mesh
from shardwise.interop.tensors.tagging import type_of
from shardwise.worlds.fake import fake_world
with fake_world(0, 4):
    import train
    mesh = train.init_mesh(2, 2, "cpu")
    with set_current_mesh(mesh):
        model = train.build(train.parse([]), train.Parallel(mesh))
        print(json.dumps({
            name: [{str(axis): str(place) for axis, place in type_of(p).local.items()}, str(type_of(p).spec)]
            for name, p in model.named_parameters()
        }))
"""


def declared(folder: Path) -> dict[str, Any]:
    done = subprocess.run([sys.executable, "-c", DECLARED, str(folder)], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])  # type: ignore[no-any-return]


@pytest.mark.nightly
def test_the_gpt_without_its_annotations_gets_all_of_them_back(tmp_path):
    folder = tmp_path / "gpt"
    shutil.copytree(GPT, folder, ignore=shutil.ignore_patterns("__pycache__"))
    for path in folder.glob("*.py"):
        path.write_text(cst.parse_module(path.read_text()).visit(Stripped()).code)
        assert "assert_type" not in path.read_text()
    assert not any(types for types, _ in declared(folder).values())
    found = report(folder, "infer", "train.py", "--mesh", "dp=2,tp=2", "--write", *ARGUMENTS)
    assert (found["written"], found["r_or_i"], found["left"]) == (True, [], [])
    assert {one["name"]: one["type"] for one in found["types"] if one["kind"] == "input"} == {
        "0 of GPT": {"dp": "S(0)", "tp": "R"},
        "batch.targets_BT": {"dp": "S(0)", "tp": "R"},
    }
    assert declared(folder) == declared(GPT)
    arguments = ("--", "--steps", "1", "--dp", "2", "--tp", "2")
    for options in (("--strict",), ("--strict", "--global")):
        assert report(folder, "check", "train.py", "--mesh", "dp=2,tp=2", *options, *arguments)["verdict"] == "clean"


class Averaging(torch.nn.Module):
    """A wrapper of the program's own."""

    def __init__(self, module):
        super().__init__()
        self.module = module


def test_before_the_program_s_own_wrapper_is_made_the_name_stands_for_what_it_wraps():
    inner = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 2))
    ((path, before, name),) = paths_to(Averaging(inner), inner[1].bias)
    assert (path, before, name) == (".module[1].bias", "[1].bias", "module.1.bias")
    ((path, before, _),) = paths_to(inner, inner[1].bias)
    assert (path, before) == ("[1].bias", "")


def test_a_file_that_cannot_be_written_is_not_said_to_be(tmp_path, monkeypatch):
    def full(*args: object) -> None:
        raise OSError(28, "No space left on device")

    script = "import torch\ntorch.nn.Linear(2, 2)(torch.ones(2, 2)).sum().backward()\n"
    (tmp_path / "train.py").write_text(script)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("shutil.copymode", full)
    done = CliRunner().invoke(main, ["infer", "train.py", "--mesh", "dp=2", "--write"])
    assert done.exit_code == 2
    assert "No space left on device; it is as it was" in done.stderr
    assert "written into" not in done.stdout
    assert (tmp_path / "train.py").read_text() == script


HOOKED = """import torch
import torch.distributed as dist
from torch import nn

dist.init_process_group("gloo")
n, me = dist.get_world_size(), dist.get_rank()
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)


def averaged(gradient):
    gradient = gradient.clone()
    dist.all_reduce(gradient)
    return gradient / n


for p in model.parameters():
    p.register_hook(averaged)
samples = torch.randn(8, 3, generator=torch.Generator().manual_seed(1)).chunk(n)[me]
model(samples).square().mean().backward()
optimizer.step()
dist.destroy_process_group()
"""


@pytest.mark.slow_but_one_in(2)
@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    ("right", "wrong", "code"),
    [
        pytest.param("", "", None, id="right"),
        pytest.param("in model.parameters()", "in list(model.parameters())[1:]", "SW608", id="one forgotten"),
        pytest.param("return gradient / n", "return gradient / n / n", "SW616", id="divided twice"),
        pytest.param("return gradient / n", "pass", "SW608", id="nothing returned"),
    ],
)
def test_gradients_that_hooks_average_are_as_right_as_those_averaged_after_backward(tmp_path, right, wrong, code):
    (tmp_path / "train.py").write_text(HOOKED.replace(right, wrong) if code else HOOKED)
    run(tmp_path, "infer", "train.py", "--mesh", "dp=2", "--write")
    found = report(tmp_path, "check", "train.py", "--mesh", "dp=2", "--global")["findings"]
    assert [one["code"] for one in found] == ([code] if code else [])
    source = (tmp_path / "train.py").read_text().splitlines()
    assert all("optimizer.step()" in source[one["place"]["line"] - 1] for one in found)
