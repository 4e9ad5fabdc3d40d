"""Programs that have no modules: what their parameters are called, and which leaves of backward are parameters."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

import _pytest
import pytest
import torch

import shardwise as spmd
from shardwise import MeshAxis, S, set_current_mesh
from shardwise.checker import typecheck
from shardwise.verifier.records import variables
from shardwise.verifier.records.variables import program_frames, tensors_held
from shardwise.verifier.runs.plain_parameters import PlainParameters


@pytest.fixture
def _called_by_the_verifier(monkeypatch):
    """What calls a test stands for what calls the program."""
    monkeypatch.setattr(variables, "_OURS", str(Path(_pytest.__file__).parent))


CALLED = pytest.mark.usefixtures("_called_by_the_verifier")


def test_who_calls_the_verifier_is_no_program():
    assert program_frames() == []


@CALLED
def test_functions_of_the_program_are_those_that_the_verifier_calls():
    assert [frame.f_code.co_name for frame in program_frames()] == [sys._getframe().f_code.co_name]


def test_of_a_long_list_not_every_element_is_looked_at():
    data = [[number] for number in range(10 * variables.MOST)]
    data.append(torch.ones(1))
    weight = [torch.ones(2)]
    assert [name for name, _ in tensors_held(sys._getframe())] == ["weight[0]"]
    assert weight


@dataclass
class Layer:
    up: torch.Tensor


class Model:
    def __init__(self) -> None:
        self.layers = [Layer(torch.ones(2)), Layer(torch.zeros(2))]


def test_a_tensor_is_called_by_the_variables_and_containers_that_hold_it():
    model, params, bare = Model(), {"out": torch.ones(1)}, torch.ones(3)
    for passing in (bare, params["out"]):
        assert passing is not None
    named = {id(tensor): name for name, tensor in tensors_held(sys._getframe())}
    assert named[id(bare)] == "bare"
    assert named[id(params["out"])] == "params['out']", "a variable of a loop is no name"
    assert named[id(model.layers[1].up)] == "model.layers[1].up"


@CALLED
def test_what_updates_make_of_a_parameter_keeps_its_name():
    found = PlainParameters()
    weight = torch.arange(1.0, 5.0)
    assert [(name, before) for name, _, before in found.named([weight])] == [("weight", None)]
    assert list(found.named([weight])) == [], "met before"
    first, weight = weight, weight * 0.9
    ((name, after, before),) = found.named([weight])
    assert (name, after is weight, before is first) == ("weight", True, True)
    weight = weight * 0.9
    ((name, _, last),) = found.at_the_end()
    assert (name, last is weight) == ("weight", True)
    assert not found.others


@CALLED
def test_what_a_stage_receives_is_no_parameter():
    found = PlainParameters()
    received = torch.tensor([1.0, -2.0])
    list(found.named([received]))
    received = torch.tensor([-5.0, 3.0])
    list(found.named([received]))
    assert found.others == {"received"}


@CALLED
def test_numbers_that_are_looked_at_to_tell_an_update_are_not_calls_of_the_program():
    found = PlainParameters()
    # A shard has no first element, and a norm of shards is one addend.
    with set_current_mesh({"tp": MeshAxis.of(2, 1)}), typecheck(local=False):
        weight = spmd.assert_type(torch.arange(1.0, 5.0), {"tp": S(0)})
        list(found.named([weight]))
        weight = weight * 0.9
        ((name, _, _),) = found.named([weight])
        weight = weight * 0.9
        assert [known for known, _, _ in found.at_the_end()] == [name] == ["weight"]
