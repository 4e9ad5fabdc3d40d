"""Operators over lists of tensors are those operators, element by element."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from shardwise.checker import typecheck

from .helpers import make, place, refused


@pytest.mark.parametrize(
    ("call", "after"),
    [
        (lambda a, b: torch._foreach_add(a, b, alpha=2), ["P", "V", "R"]),
        (lambda a, b: torch._foreach_mul(a, 2.0), ["P", "V", "R"]),
        (lambda a, b: torch._foreach_mul(a, [2.0, 3.0, 4.0]), ["P", "V", "R"]),
        (lambda a, b: torch._foreach_lerp(a, b, 0.5), ["P", "V", "R"]),
        (lambda a, b: torch._foreach_norm(a[1:]), ["V", "R"]),
        (lambda a, b: torch._foreach_pow(2.0, a[1:]), ["V", "R"]),  # the list stands behind
        (lambda a, b: torch._foreach_add(self=a, other=b), ["P", "V", "R"]),
        (lambda a, b: torch._foreach_addcdiv(a[1:], b[1:], b[1:], 0.1), ["V", "R"]),
    ],
)
def test_each_result_is_that_of_its_element(tp_mesh: Any, call: Any, after: list[str]) -> None:
    first, second = [[make(letter) for letter in "PVR"] for _ in range(2)]
    with typecheck():
        assert [place(result) for result in call(first, second)] == after


@pytest.mark.parametrize(
    ("letter", "call", "code"),
    [
        ("P", lambda xs, r: torch._foreach_sqrt(xs), "SW112"),
        ("P", lambda xs, r: torch._foreach_add_(xs, [r, r]), "SW113"),
        ("P", lambda xs, r: torch._foreach_mul(xs, xs), "SW111"),
        ("R", lambda xs, r: torch._foreach_add_(xs, [r, make("P")]), "SW113"),
    ],
)
def test_an_element_is_refused_as_the_operator_refuses_it(tp_mesh: Any, letter: str, call: Any, code: str) -> None:
    xs, replicated = [make(letter), make(letter)], make("R")
    with typecheck(), refused(code):
        call(xs, replicated)


def test_a_destination_follows_what_is_written(tp_mesh: Any) -> None:
    averages, weights = [make("R"), make("R")], [make("R"), make("V")]
    with typecheck():
        torch._foreach_lerp_(averages, weights, 0.1)
        assert [place(average) for average in averages] == ["R", "V"]
        torch._foreach_copy_(averages, [make("V"), make("R")])
        assert [place(average) for average in averages] == ["V", "V"]


def test_a_destination_may_be_given_by_name(tp_mesh: Any) -> None:
    first, second = [make("P"), make("V")], [make("P"), make("R")]
    with typecheck():
        torch._foreach_add_(self=first, other=second)
        assert [place(x) for x in first] == ["P", "V"]
        with refused("SW113"):
            torch._foreach_add_(self=[make("P")], other=[make("R")])


def test_a_weight_that_takes_part_in_autograd_is_not_retyped(tp_mesh: Any) -> None:
    weight = make("R", grad=True)
    with typecheck(), torch.no_grad(), refused("SW120", "weight"):
        torch._foreach_add_([weight], [make("V")])


def test_an_element_without_a_type_is_passed_over_and_leaves_none(tp_mesh: Any) -> None:
    x = make("R")
    with typecheck():
        (result,) = torch._foreach_add([x], [torch.randn(4, 4)])
        assert place(result) == ""
        for write in (torch._foreach_add_, torch._foreach_copy_):
            x = make("R")
            write([x], [torch.randn(4, 4)])
            assert place(x) == ""
            weight = make("R", grad=True)
            with torch.no_grad():
                write([weight], [torch.randn(4, 4)])
            assert place(weight) == "R"


@pytest.mark.parametrize("options", [{"foreach": True}, {"foreach": False}, {"fused": True}])
@pytest.mark.parametrize("letter", ["R", "I", "V"])
def test_optimizers_step_on_typed_parameters(tp_mesh: Any, letter: str, options: dict[str, bool]) -> None:
    weights = [make(letter, grad=True), make(letter, grad=True)]
    with typecheck():
        optimizer = torch.optim.AdamW(weights, amsgrad=True, **options)
        for _ in range(2):
            for weight in weights:
                weight.grad = torch.ones(4, 4)
            optimizer.step()
    assert [place(weight) for weight in weights] == [letter, letter]


def test_products_of_pairs_follow_the_product(tp_mesh: Any) -> None:
    with typecheck():
        found = torch._foreach_mm([make("P"), make("R")], [make("R"), make("V")])
        assert [place(one) for one in found] == ["P", "V"]
        with refused("SW111", "mm"):
            torch._foreach_mm([make("P")], [make("P")])
