"""The record of a checked run: types per line and at modules, in JSON and back, in the terminal; and none unasked."""

from __future__ import annotations

import json
import linecache
import sys

import pytest
from torch.nn.modules import module as modules

from shardwise.diagnostics.finding import Finding
from shardwise.diagnostics.formats import from_json, to_dict, to_json
from shardwise.diagnostics.merged_results import merge
from shardwise.diagnostics.result import RunResult
from shardwise.diagnostics.run_record import (
    AssumedLink,
    CostedCall,
    MadeMesh,
    ModuleTypes,
    NamedLayout,
    NamedTypes,
    RunRecord,
    merged_types,
)
from shardwise.diagnostics.source_location import SourceLocation
from shardwise.report.annotated_source import annotated

PROGRAM = """\
from layers import Up
with set_current_mesh(mesh):
    model = Up()
    for batch in (4, 6):
        x = assert_type(torch.randn(batch, 8), {"dp": V, "tp": R})
        y = model(x)
    z = torch.relu(assert_type(torch.ones(3), {"dp": R, "tp": P}))
"""
LAYERS = """\
import torch
from torch import nn
from shardwise import I, R, V, assert_type

class Up(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(assert_type(torch.ones(16, 8), {"dp": R, "tp": V}))

    def forward(self, x):
        return torch.nn.functional.linear(x, self.weight)
"""


@pytest.fixture
def program(project):
    linecache.checkcache()
    sys.modules.pop("layers", None)
    project.write(LAYERS, "layers.py")
    return project.write(PROGRAM, typed=True)


def test_lines_of_the_script_and_of_its_modules_have_types(project, program):
    told = json.loads(project.check(program, "--annotate", "--format", "json").stdout)["record"]
    values = {
        (one["place"]["file"].rpartition("/")[2], one["place"]["line"], one["name"]): one for one in told["values"]
    }
    assert values["train.py", 10, "x"]["text"] == "f32[*, 8] {dp: V, tp: R}"
    assert values["train.py", 10, "x"]["types"] == [
        {"type": "f32[4, 8] {dp: V, tp: R}", "count": 1},
        {"type": "f32[6, 8] {dp: V, tp: R}", "count": 1},
    ]
    assert values["train.py", 11, "y"]["text"] == "f32[*, 16] {dp: V, tp: V}"
    assert values["layers.py", 8, "self.weight"]["text"] == "f32[16, 8] {dp: R, tp: V}"
    assert values["layers.py", 10, "x"]["place"]["column"] == 23
    assert values["layers.py", 11, "return"]["text"] == "f32[*, 16] {dp: V, tp: V}"
    (module,) = told["modules"]
    assert (module["path"], module["class"], module["count"]) == ("Up", "Up", 2)
    assert [(one["name"], one["text"]) for one in module["inputs"]] == [("x", "f32[*, 8] {dp: V, tp: R}")]
    assert [(one["name"], one["text"]) for one in module["parameters"]] == [("weight", "f32[16, 8] {dp: R, tp: V}")]


def test_annotate_prints_the_program_before_the_report(project, program):
    result = project.check(program, "--annotate")
    assert result.exit_code == 1
    lines = result.stdout.splitlines()
    assert lines[0] == "train.py"
    (line,) = [line for line in lines if "y = model(x)" in line]
    assert line.endswith("# y: f32[*, 16] {dp: V, tp: V}, 2 times")
    at = next(number for number, line in enumerate(lines) if line.startswith("12 | "))
    assert lines[at + 1].endswith("^^^^")
    assert lines[at + 2].startswith("   | SW112 relu needs complete values")
    assert any(line.startswith("layers.py") for line in lines)
    assert lines[-1].startswith("1 error in 1 line; ")


def test_each_line_has_the_type_at_that_line_whatever_changes_it(project):
    source = """
    import torch.distributed as dist
    group = mesh.get_group("tp")
    x = assert_type(torch.randn(4), {"tp": P})
    same = x
    work = dist.all_reduce(x, group=group, async_op=True)
    work.wait()
    y = same
    """
    told = json.loads(project.check_source(source, "--annotate", "--format", "json", typed=True).stdout)["record"]
    lines = [(one["name"], one["text"]) for one in told["values"] if one["name"] in ("x", "same", "y")]
    assert lines == [
        ("x", "f32[4] {tp: P}"),
        ("same", "f32[4] {tp: P}"),
        ("x", "f32[4] unknown"),
        ("same", "f32[4] unknown"),
        ("x", "f32[4] {tp: R}"),
        ("same", "f32[4] {tp: R}"),
        ("y", "f32[4] {tp: R}"),
    ]


def test_a_function_that_is_run_to_look_at_it_is_told_as_often_as_the_program_calls_it(project):
    source = """
    import torch
    import torch.distributed as dist

    class Reduce(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            out = x.clone()
            dist.all_reduce(out)
            return out

        @staticmethod
        def backward(ctx, grad):
            return grad

    dist.init_process_group("gloo")
    Reduce.apply(torch.randn(4, requires_grad=True)).sum().backward()
    dist.destroy_process_group()
    """
    script = project.write(source)
    told = json.loads(project.check(script, "--mesh", "tp=2", "--annotate", "--format", "json").stdout)["record"]
    values = {one["name"]: one for one in told["values"]}
    assert values["x"]["types"] == [{"type": "f32[4] {}", "count": 1}]
    assert [one["count"] for one in values["grad"]["types"]] == [1]


@pytest.mark.processes
def test_with_several_ranks_the_record_is_that_of_the_first(project, program):
    result = project.check(program, "--annotate", "--ranks", "0,5", "--format", "json")
    told = json.loads(result.stdout)
    assert told["ranks"] == [0, 5]
    assert {one["name"] for one in told["record"]["values"]} >= {"x", "y", "z", "self.weight"}


def test_unasked_nothing_is_traced_and_no_hook_is_left(project):
    before = sys.gettrace()
    source = "import sys\nx = torch.ones(3)\nprint(sys.gettrace())\n"
    result = project.check_source(source, "--format", "json", typed=True)
    assert json.loads(result.stdout)["record"] is None
    assert result.stderr.splitlines()[-1] == str(before)
    hooks = len(modules._global_forward_hooks), len(modules._global_forward_pre_hooks)
    project.check_source("x = torch.ones(3)\n", "--annotate", typed=True)
    assert (len(modules._global_forward_hooks), len(modules._global_forward_pre_hooks)) == hooks
    assert sys.gettrace() is before


@pytest.mark.parametrize(
    ("types", "merged"),
    [
        (["f32[4] {tp: R}"], ["f32[4] {tp: R}"]),
        (["f32[4, 8]", "f32[2, 8]"], ["f32[*, 8]"]),
        (["f32[4@dp, 8@(dp,tp)] {tp: P}", "f32[2@dp, 9@(dp,tp)] {tp: P}"], ["f32[*@dp, *@(dp,tp)] {tp: P}"]),
        (["f32[5@~tp]", "f32[4@~tp]"], ["f32[*@~tp]"]),
        (["f32[4]", "f32[4@dp]"], ["f32[4]", "f32[4@dp]"]),
        (["f32[4]", "f32[4, 4]", "f32[8]"], ["f32[*]", "f32[4, 4]"]),
        (["f32[4] {tp: P}", "f32[4] {tp: R}"], ["f32[4] {tp: P}", "f32[4] {tp: R}"]),
        (["f32[]", "f32[]"], ["f32[]"]),
        (["(f32[4], None)", "(f32[8], None)"], ["(f32[4], None)", "(f32[8], None)"]),
    ],
)
def test_types_that_differ_in_sizes_alone_are_one(types, merged):
    assert merged_types(types) == merged


FILE = "/project/long.py"
RECORD = RunRecord(
    (NamedTypes("h", (("f32[4] {tp: P}", 2), ("f32[8] {tp: P}", 1)), SourceLocation(FILE, 30, 30, 0, 1)),),
    (ModuleTypes("GPT.0", "Block", (NamedTypes("x", (("f32[4]", 1),)),), (), (), 3),),
    (CostedCall("all_reduce", "tp", (0, 1), 0, "f32[4]", "sum", "P->R", 2, 16, 1e-6, SourceLocation(FILE, 30)),),
    (AssumedLink("tp", 1e-6, 1e9, "assumed"),),
    (MadeMesh((NamedLayout("pp", (2,), (4,)), NamedLayout("tp", (4,), (1,))), (NamedLayout("all", (8,), (1,)),)),),
)


@pytest.fixture
def long_file():
    source = [f"line{at} = {at}\n" for at in range(1, 60)]
    source[29] = "h = " + "f(x) + " * 30 + "1\n"
    linecache.cache[FILE] = (1, None, source, FILE)
    yield
    linecache.cache.pop(FILE)


def test_a_record_survives_json_and_the_merging_of_ranks(long_file):
    result = RunResult(record=RECORD)
    assert from_json(to_json(result)) == result
    assert merge({0: result, 1: result}).record == RunRecord(
        RECORD.values, RECORD.modules, RECORD.collectives * 2, RECORD.links, RECORD.meshes
    )
    assert from_json(json.dumps({**to_dict(result), "record": None})).record is None


@pytest.mark.parametrize("width", [40, 80, 200])
def test_an_annotated_program_keeps_the_width_and_leaves_out_quiet_stretches(long_file, width):
    finding = Finding("SW112", "relu needs complete values", location=SourceLocation(FILE, 31, 31, 0, 6))
    text = annotated(RunResult((finding,), record=RECORD), width=width, root="/project")
    lines = text.splitlines()
    assert max(map(len, lines)) <= width
    assert "h: f32[*] {tp: P}, 3 times" in text
    assert "line1 " not in text
    assert "line29 " in text
    assert lines.count("...") == 2
    assert "line1 " in annotated(RunResult(record=RECORD), width=width, root="/project", whole=True)


def test_colour_and_hostile_names_do_not_reach_the_terminal_as_they_are(long_file):
    hostile = NamedTypes("h\x1b[31m", (("f32[4]\u202e", 1),), SourceLocation(FILE, 30, 30, 0, 1))
    result = RunResult(record=RunRecord((hostile,)))
    assert "\x1b" not in annotated(result, root="/project")
    assert "\u202e" not in annotated(result, root="/project")
    assert "\x1b[" in annotated(result, root="/project", color=True)
