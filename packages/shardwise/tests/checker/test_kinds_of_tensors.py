"""Sparse, quantised, nested, meta, fake, empty, 0-d and complex tensors and subclasses carry types like any other."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

import shardwise as spmd
from shardwise import P, R
from shardwise.checker import typecheck
from shardwise.checker.scopes.activation import checking
from shardwise.diagnostics.result import Collector

from .helpers import make, place, refused


class Plain(torch.Tensor):
    """A subclass with torch's own protocol."""


class Own(torch.Tensor):
    """A subclass with a protocol of its own."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return super().__torch_function__(func, types, args, kwargs or {})


def ragged(layout: torch.layout) -> torch.Tensor:
    return torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=layout)


KINDS = {
    "sparse": lambda: torch.eye(4).to_sparse(),
    "compressed rows": lambda: torch.eye(4).to_sparse_csr(),
    "nested": lambda: ragged(torch.strided),
    "jagged": lambda: ragged(torch.jagged),
    "meta": lambda: torch.ones(4, 4, device="meta"),
    "fake": lambda: FakeTensorMode().from_tensor(torch.ones(4, 4)),
    "empty": lambda: torch.ones(0, 4),
    "0-d": lambda: torch.ones(()),
    "complex": lambda: torch.ones(4, dtype=torch.complex64),
    "subclass": lambda: torch.ones(4).as_subclass(Plain),
    "subclass with a protocol": lambda: torch.ones(4).as_subclass(Own),
}


@pytest.mark.parametrize("local", [True, False], ids=["local", "global"])
@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_a_tensor_of_this_kind_is_checked(tp_mesh: Any, kind: Any, local: bool) -> None:
    whole, addend = kind(), kind()
    with typecheck(local=local):
        spmd.assert_type(whole, {"tp": R})
        spmd.assert_type(addend, {"tp": P})
        assert place(torch.relu(whole.real)) == "R"
        assert place(whole * 2) == "R"
        assert place(addend * 2) == "P"
        assert "tp: P" in str(spmd.typeof(addend))
        with refused("SW112"):
            torch.abs(addend)


@pytest.mark.parametrize("local", [True, False], ids=["local", "global"])
def test_a_nested_tensor_without_a_type_may_be_worked_on(tp_mesh: Any, local: bool) -> None:
    with typecheck(local=local):
        assert torch.relu(ragged(torch.strided) * 2).is_nested


NESTED = {
    "nested_tensor": lambda x: torch.nested.nested_tensor([x, x]),
    "nested_tensor, jagged": lambda x: torch.nested.nested_tensor([x, x], layout=torch.jagged),
    "as_nested_tensor": lambda x: torch.nested.as_nested_tensor([x, x]),
    "as_nested_tensor, jagged": lambda x: torch.nested.as_nested_tensor([x, x], layout=torch.jagged),
    "nested_tensor_from_jagged": lambda x: torch.nested.nested_tensor_from_jagged(x, torch.tensor([0, 1, 4])),
}


@pytest.mark.parametrize("nest", NESTED.values(), ids=NESTED)
def test_a_nested_tensor_of_typed_ones_is_refused_by_name(tp_mesh, nest):
    with typecheck(), refused("SW301", "nested_tensor"):
        nest(make("P"))


@pytest.mark.parametrize("nest", NESTED.values(), ids=NESTED)
def test_a_nested_tensor_is_listed_and_its_type_unknown_in_permissive_mode(tp_mesh, nest):
    found = Collector()
    with checking(strict=False, collect=found):
        made = nest(make("P"))
        assert place(made.unbind()[0].relu()) == ""
    assert found.result().no_rule_ops[0][1] == 1
    assert found.result().findings == ()


class Tracked:
    """A tensor and what has been done with it, as metrics and tracers keep them; no tensor itself."""

    def __init__(self, value):
        self.value = value
        self.calls = []

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        made = cls(func(*(arg.value if isinstance(arg, cls) else arg for arg in args), **(kwargs or {})))
        made.calls.append(func.__name__)
        return made


def test_what_an_object_does_in_the_place_of_a_call_is_checked(tp_mesh):
    with typecheck():
        made = torch.add(Tracked(make("P")), make("P"))
        assert (made.calls, place(made.value)) == (["add"], "P")
        with refused("SW112", "relu"):
            torch.relu(Tracked(make("P")))
