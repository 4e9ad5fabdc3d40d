"""With SHARDWISE_FIRST_STEP=1 a job is checked until its first optimizer step, told so, and left alone."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.overrides import TorchFunctionMode

import shardwise as spmd
from shardwise import P, R
from shardwise.checker.scopes import first_step
from shardwise.interop.torch_compat import count_function_modes


@pytest.fixture(autouse=True)
def asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(first_step.VARIABLE, "1")
    monkeypatch.setattr(first_step._Job, "over", False)


class Steps:
    """A parameter and its optimizer."""

    def __init__(self) -> None:
        self.parameter = torch.nn.Parameter(torch.ones(4))
        self.optimizer = torch.optim.SGD([self.parameter], lr=0.1)

    def step(self) -> None:
        self.parameter.grad = torch.ones(4)
        self.optimizer.step()


def wrong() -> torch.Tensor:
    return torch.relu(spmd.assert_type(torch.ones(4), {spmd.MeshAxis.of(2, 1): P}))


def test_the_first_step_is_reported_and_later_ones_are_not_checked(capsys):
    steps = Steps()
    with spmd.typecheck("permissive"):
        assert spmd.is_type_checking()
        wrong()
        steps.step()
        said = capsys.readouterr().err
        assert said.startswith("SW112 partial-sum-in-nonlinear-op")
        assert "the first step of rank 0 was checked" in said
        assert "later steps run unchecked" in said
        assert count_function_modes() == 0, "no call is seen any more"
        assert not spmd.is_type_checking()
        wrong()
        steps.step()
    with spmd.typecheck():
        assert not spmd.is_type_checking()
        wrong()
    assert capsys.readouterr().err == ""


def test_a_mode_of_the_program_above_ours_keeps_it_asleep(capsys):
    class Above(TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return func(*args, **(kwargs or {}))

    steps = Steps()
    with spmd.typecheck("permissive"):
        with Above():
            steps.step()
            wrong()
        assert not spmd.is_type_checking()
        wrong()
    assert count_function_modes() == 0
    assert "SW112" not in capsys.readouterr().err


def test_a_program_without_a_step_is_reported_at_its_end(capsys):
    with spmd.typecheck():
        wrong()
        assert capsys.readouterr().err == ""
    assert "SW112" in capsys.readouterr().err


def test_only_ranks_that_found_something_speak_beside_rank_0(capsys, monkeypatch):
    monkeypatch.setenv("RANK", "3")
    with spmd.typecheck():
        spmd.assert_type(torch.ones(4), {spmd.MeshAxis.of(2, 1): R}).relu()
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(first_step._Job, "over", False)
    with spmd.typecheck():
        wrong()
    assert "the first step of rank 3 was checked" in capsys.readouterr().err


def test_without_the_variable_findings_are_raised_as_ever(monkeypatch):
    monkeypatch.delenv(first_step.VARIABLE)
    steps = Steps()
    with spmd.typecheck("permissive"):
        steps.step()
        assert spmd.is_type_checking()
        with pytest.raises(spmd.SpmdTypeError):
            wrong()
