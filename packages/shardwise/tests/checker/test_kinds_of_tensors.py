"""Sparse, quantised, nested, meta, fake, empty, 0-d and complex tensors and subclasses carry types like any other."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

import shardwise as spmd
from shardwise import P, R
from shardwise.checker import typecheck

from .helpers import place, refused


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
