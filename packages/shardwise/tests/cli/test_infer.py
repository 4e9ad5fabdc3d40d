"""Does ``shardwise infer`` say how the tensors of unannotated programs lie, and how it knows?"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.processes, pytest.mark.usefixtures("warm_python")]

PROGRAMS = Path(__file__).parents[1] / "programs" / "unannotated" / "right"


def infer(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "shardwise", "infer", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=300)


def inferred(program: str, mesh: str) -> dict[str, Any]:
    done = infer(str(PROGRAMS / f"{program}.py"), "--mesh", mesh, "--format", "json")
    assert done.returncode == 0, done.stdout + done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    assert report["schema"] == "shardwise.infer/1"
    return report


def types_of(report: dict[str, Any]) -> dict[str, Any]:
    return {one["name"]: one["type"] for one in report["types"]}


def test_gradients_tell_r_from_i_on_two_axes():
    types = types_of(inferred("raw_groups_3d", "dp=2,tp=2"))
    assert types["1.up"] == {"dp": "R", "tp": "S(0)"}
    assert types["1.down"] == {"dp": "R", "tp": "S(1)"}
    # The sum over tp is in backward, that over dp comes after it.
    assert types["1.norm.weight"] == types["0.bias"] == {"dp": "R", "tp": "I"}
    assert types["0 of Sequential"] == {"dp": "S(0)", "tp": "R"}
    assert types["1 (MLP)"] == {"dp": "S(0)", "tp": "R or I"}


@pytest.mark.nightly
def test_what_is_cut_by_two_axes_and_what_is_merged():
    assert types_of(inferred("fsdp_tp", "dp=2,tp=2"))["0.down.weight"] == {"dp": "S(0)", "tp": "S(1)"}
    report = inferred("merged_qkv_tp", "tp=2")
    (qkv,) = [one for one in report["types"] if one["name"] == "0.qkv"]
    assert qkv["type"] == {"tp": "S(0)"}
    assert "cut into parts" in qkv["known_by"]["tp"]


def test_a_stage_is_no_replica():
    report = inferred("pipeline_1f1b", "pp=2")
    held = [one for one in report["types"] if one["name"] == "layers.1.weight"]
    assert [(one["ranks"], one["name_on_one_rank"], one["type"]) for one in held] == [
        ([0], "layers.1.weight", {}),
        ([1], "layers.3.weight", {}),
    ]


def test_values_that_nothing_explains(tmp_path):
    script = tmp_path / "seeds.py"
    script.write_text(
        "import torch, torch.distributed as dist\n"
        "dist.init_process_group('gloo')\n"
        "torch.manual_seed(dist.get_rank() + 7 * dist.get_world_size())\n"
        "model = torch.nn.Linear(3, 2)\n"
        "model(torch.ones(1, 3)).sum().backward()\n"
    )
    done = infer(str(script), "--mesh", "dp=2")
    assert done.returncode == 3, done.stdout + done.stderr
    assert "no layout explains the values of 2" in done.stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--mesh", "dp=2"], "say what to run"),
        ([str(PROGRAMS / "hsdp.py"), "--mesh", "dp=1"], "one rank"),
        ([str(PROGRAMS / "nothing.py"), "--mesh", "dp=2"], "does not exist"),
    ],
)
def test_wrong_usage(words, said):
    done = infer(*words)
    assert done.returncode == 2
    assert said in done.stderr
