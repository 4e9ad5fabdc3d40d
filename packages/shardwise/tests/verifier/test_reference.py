"""Is a program compared with an independent single-device function, and is what is no such function said clearly?"""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from shardwise.diagnostics.result import ExitCode
from shardwise.host.no_run import NoProgram
from shardwise.host.program import Program
from shardwise.verifier.records.options import VerifyOptions
from shardwise.verifier.records.reference import reference_named
from shardwise.verifier.records.subject import Script
from shardwise.verifier.run import verify_subject
from shardwise.verifier.text import Verdict

TRAIN = """
    import torch
    import torch.distributed as dist
    import torch.nn as nn

    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    data = torch.arange(32.0).view(8, 4).sin()
    loss = model(data.chunk(world)[rank]).softmax({dim}).square().sum() / 8
    loss.backward()
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)
    optimizer.step()
"""
REFERENCES = """
    import torch
    import torch.nn as nn

    def modules(parameters):
        model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))
        model.load_state_dict(parameters)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        (model(torch.arange(32.0).view(8, 4).sin()).softmax(1).square().sum() / 8).backward()
        optimizer.step()

    def plain(parameters):
        w = {name: value.requires_grad_() for name, value in parameters.items()}
        h = torch.tanh(torch.arange(32.0).view(8, 4).sin() @ w["0.weight"].T + w["0.bias"])
        loss = (h @ w["2.weight"].T + w["2.bias"]).softmax(1).square().sum() / 8
        return {"loss": loss, **dict(zip(w, torch.autograd.grad(loss, list(w.values()))))}

    def two(one, other):
        pass

    def number(parameters):
        return 3

    def unknown(parameters):
        return {"3.weight": torch.ones(1)}

    def other():
        nn.Linear(2, 2)(torch.ones(1, 2)).sum().backward()

    def raising():
        raise ValueError("no luck")
"""


def verdict_on(folder: Path, name: str, dim: int = 1) -> Verdict:
    (folder / "train.py").write_text(textwrap.dedent(TRAIN.replace("{dim}", str(dim))))
    (folder / "reference.py").write_text(textwrap.dedent(REFERENCES))
    against = reference_named(f"{folder / 'reference.py'}:{name}")
    subject = Script(Program(path=str(folder / "train.py")))
    return verify_subject(subject, {"dp": 2}, VerifyOptions(strict=False, timeout_s=100.0), against=against)


@pytest.mark.processes
@pytest.mark.parametrize("name", ["modules", "plain"])
def test_a_right_program_agrees_with_its_reference(tmp_path, name):
    verdict = verdict_on(tmp_path, name)
    assert verdict.exit_code is ExitCode.CLEAN, str(verdict)
    assert verdict.numbers.gradients == 4


@pytest.mark.processes
@pytest.mark.parametrize("name", ["modules", "plain"])
def test_a_mistake_that_one_rank_makes_too_is_seen(tmp_path, name):
    verdict = verdict_on(tmp_path, name, dim=0)
    assert verdict.exit_code is ExitCode.FINDINGS, str(verdict)
    assert [wrong.key.kind for wrong in verdict.numbers.disagreements[:2]] == ["loss", "gradient"]
    assert "that disagrees with it too, so the mistake is not one of the mesh" in str(verdict)


@pytest.mark.one_in(2)
@pytest.mark.processes
@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("two", "two takes one, other: a reference takes nothing, or one argument"),
        ("number", "number returns int: a reference returns nothing, or a dict of tensors"),
        ("unknown", "unknown returns '3.weight', which is no parameter of the program: it has 0.weight"),
        ("missing", "there is no function missing in"),
    ],
)
def test_what_is_no_reference_is_refused(tmp_path, name, said):
    with pytest.raises(NoProgram, match=said):
        verdict_on(tmp_path, name)


@pytest.mark.processes
@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("other", "its parameters are weight, bias; those of the program are 0.weight"),
        ("raising", "ValueError: no luck"),
    ],
)
def test_a_reference_that_cannot_be_compared_is_no_verdict(tmp_path, name, said):
    verdict = verdict_on(tmp_path, name)
    assert verdict.exit_code is ExitCode.BROKEN
    assert said in str(verdict)


@pytest.mark.parametrize("text", ["reference.py", ":step", "reference.py:1"])
def test_a_reference_is_named_by_file_and_function(text):
    with pytest.raises(NoProgram, match=r"write FILE\.py:FUNCTION"):
        reference_named(text)


def test_a_file_that_is_not_there_is_said():
    with pytest.raises(NoProgram, match="does not exist"):
        reference_named("nowhere.py:step")
