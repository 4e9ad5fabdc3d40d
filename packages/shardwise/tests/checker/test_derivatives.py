"""What torch.func's derivatives are: types go in and out of the transforms, and each rank derives its own output."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.func import functional_call, grad, grad_and_value, vjp, vmap

import shardwise as spmd
from shardwise.checker import typecheck

from .helpers import make, place, refused


@pytest.mark.parametrize("letter", ["R", "I", "V", "P"])
def test_a_transform_hands_the_type_of_its_argument_in(tp_mesh: Any, letter: str) -> None:
    seen = []
    with typecheck():
        vjp(lambda x: seen.append(place(x)) or x * 2, make(letter))
    assert seen == [letter]


@pytest.mark.parametrize(
    ("x", "weight", "gradient"),
    [("V", "V", "V"), ("V", "R", "V"), ("I", "I", "I"), ("P", "R", "R")],
)
def test_the_gradient_of_an_argument(tp_mesh: Any, x: str, weight: str, gradient: str) -> None:
    with typecheck():
        derivative, value = grad_and_value(lambda x, w: (x @ w).sum())(make(x), make(weight))
    assert place(derivative) == gradient
    assert place(value) == x


def test_the_gradient_of_a_replicate_argument_varies_with_the_loss(tp_mesh: Any) -> None:
    with typecheck():
        assert place(grad(lambda w, x: (x @ w).sum())(make("R"), make("V"))) == "V"


def test_per_sample_gradients_vary(tp_mesh: Any) -> None:
    with typecheck():
        each = vmap(grad(lambda w, x: (w * x).sum()), in_dims=(None, 0))(make("R"), make("V", 3, 4, 4))
        assert place(each.flatten(1).norm(dim=1)) == "V"


def test_a_pullback_gives_duals(tp_mesh: Any) -> None:
    with typecheck():
        out, pull = vjp(lambda w, x: x @ w, make("R"), make("V"))
        w, x = pull(torch.ones_like(out))
    assert (place(w), place(x)) == ("P", "V")


def test_parameters_of_a_functional_call_keep_their_types(tp_mesh: Any) -> None:
    model = torch.nn.Linear(4, 4)
    parameters = {"weight": make("R"), "bias": make("R", 4)}
    with typecheck():
        gradients = grad(lambda p, x: functional_call(model, p, (x,)).square().sum())(parameters, make("V"))
    assert {name: place(gradient) for name, gradient in gradients.items()} == {"weight": "V", "bias": "V"}


def test_a_replicated_loss_is_refused_as_in_backward(tp_mesh: Any) -> None:
    with typecheck(), refused("SW601"):
        grad(lambda x: x.sum())(make("R"))


def test_outside_a_check_nothing_is_typed() -> None:
    assert not spmd.has_local_type(grad(lambda x: x.sum())(torch.ones(2)))
