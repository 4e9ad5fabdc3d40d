"""What no function mode shows: functions that torch has compiled to its own language, and tensors of another class."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import shardwise as spmd
from shardwise.checker import typecheck
from shardwise.interop.tensors.tagging import type_of
from shardwise.types.tensor_type import UNKNOWN_TYPE

from .helpers import make, place, refused


@torch.jit.script
def scaled_relu(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.relu(x) * y


traced_square = torch.jit.trace(lambda x: x * x, (torch.ones(4, 4),))


class Squares(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * x


class Named(torch.Tensor):
    """A tensor of another class."""


@pytest.mark.parametrize(("letters", "result"), [("RR", "R"), ("VR", "V"), ("VV", "V"), ("II", "I")])
def test_a_scripted_function_is_checked_as_the_function_it_was_made_of(tp_mesh: Any, letters: str, result: str) -> None:
    with typecheck():
        x, y = make(letters[0]), make(letters[1])
        made = scaled_relu(x, y)
        assert place(made) == result
        assert made.tolist() == (torch.relu(x) * y).tolist()


def test_what_it_does_is_refused_where_it_does_it(tp_mesh: Any) -> None:
    with typecheck():
        with refused("SW112", "relu needs complete values"):
            scaled_relu(make("P"), make("R"))
        with refused("SW111"):
            traced_square(make("P"))
        assert place(traced_square(make("R"))) == "R"


def test_a_scripted_module_is_an_operator_without_a_rule(tp_mesh: Any) -> None:
    for module in (torch.jit.script(Squares()), torch.jit.trace(Squares(), torch.ones(4, 4))):
        with typecheck(), refused("SW301", "forward"):
            module(make("P"))
        with typecheck("permissive"):
            assert type_of(module(make("P"))) is UNKNOWN_TYPE


def test_nothing_is_different_where_nothing_is_checked(tp_mesh: Any) -> None:
    assert scaled_relu(make("P"), make("R")).tolist() == torch.ones(4, 4).tolist()
    with typecheck():
        assert scaled_relu(torch.ones(2), torch.ones(2)).tolist() == [1, 1]


@pytest.mark.parametrize("letter", "RIVP")
def test_a_tensor_of_another_class_keeps_its_type(tp_mesh: Any, letter: str) -> None:
    with typecheck():
        named = make(letter).as_subclass(Named)
        assert (type(named), place(named)) == (Named, letter)
        assert place(named + named) == letter
        assert place(named.as_subclass(torch.Tensor)) == letter


def test_both_objects_are_one_tensor(tp_mesh: Any) -> None:
    with typecheck():
        x = make("P")
        named = x.as_subclass(Named)
        spmd.all_reduce(x, "tp", dst=spmd.R, inplace=True)
        assert place(named) == "R"
