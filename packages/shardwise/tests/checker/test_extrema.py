"""A pending maximum or minimum: what the rules admit holds in numbers on every rank, and what they refuse does not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import shardwise as spmd
from shardwise import P, R, S
from shardwise.checker import typecheck
from shardwise.op_rules.propagation.local import Given, Refusal, Weak, local_rule
from shardwise.op_rules.registry import lookup
from shardwise.op_rules.vocabulary.monotone import MOVES, NON_DECREASING
from shardwise.types import SpmdTypeError
from shardwise.types.placement import V

KINDS = ("max", "min")
RANKS = 3
REDUCE: dict[str, Callable[[Tensor], Tensor]] = {"max": lambda x: x.amax(0), "min": lambda x: x.amin(0)}


def spelt(op: str) -> Callable[..., Tensor] | None:
    """The function of one tensor that is called ``op``."""
    names = op.split(".")
    for owner in (torch, torch.nn.functional, torch.Tensor):
        found: Any = owner
        for name in names:
            found = getattr(found, name, None)
        if callable(found):
            return found
    return None


POINTWISE = sorted(NON_DECREASING - MOVES - {"clamp_min", "clamp_max", "clamp", "clip"})


@pytest.mark.parametrize("op", POINTWISE)
@pytest.mark.parametrize("kind", KINDS)
def test_a_function_that_is_said_not_to_decrease_commutes_with_the_reduction(op: str, kind: str) -> None:
    function = spelt(op)
    assert function is not None, f"torch has no function {op}"
    for low, high in ((-4.0, 4.0), (0.05, 0.95)):
        x = low + (high - low) * torch.rand(RANKS, 200, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
        whole, each = function(REDUCE[kind](x)), REDUCE[kind](function(x))
        sound = ~(function(x).isnan().any(0))  # outside of its domain a function has no value to compare
        torch.testing.assert_close(whole[sound], each[sound])


@pytest.mark.parametrize("op", sorted(NON_DECREASING))
def test_every_such_name_is_one_that_the_registry_knows(op: str) -> None:
    assert lookup(op) is not None


OTHER = torch.linspace(-2, 2, 8, dtype=torch.float64)
CALLS: list[tuple[str, Callable[[Tensor], Tensor], str | None]] = [
    ("add R", lambda x: x + OTHER, "{0}"),
    ("R plus it", lambda x: OTHER + x, "{0}"),
    ("add a number", lambda x: x + 1.5, "{0}"),
    ("subtract R", lambda x: x - OTHER, "{0}"),
    ("subtract from a number", lambda x: 1.0 - x, "{1}"),
    ("negate", lambda x: -x, "{1}"),
    ("times a number above zero", lambda x: x * 0.5, "{0}"),
    ("times a whole number", lambda x: 3 * x, "{0}"),
    ("times a number below zero", lambda x: x * -0.5, None),
    ("times R", lambda x: x * OTHER, None),
    ("above a number", lambda x: x > 0.25, "{0}"),
    ("at least R, as a number", lambda x: (x >= OTHER).double(), "{0}"),
    ("below R", lambda x: x < OTHER, "{1}"),
    ("at most a number", lambda x: x <= -0.25, "{1}"),
    ("R above it", lambda x: torch.gt(OTHER, x), "{1}"),
    ("equal to R", lambda x: x == OTHER, None),
    ("above itself", lambda x: x > x.flip(0), None),
    ("square", lambda x: x.square(), None),
    ("abs", lambda x: x.abs(), None),
    ("sum", lambda x: x.sum(), None),
    ("softmax", lambda x: x.softmax(0), None),
    ("view", lambda x: x.view(2, 4), "{0}"),
    ("index", lambda x: x[2:5], "{0}"),
    ("cast", lambda x: x.float(), "{0}"),
    ("clamp", lambda x: x.clamp(-0.5, 0.5), "{0}"),
    ("exp", lambda x: x.exp(), "{0}"),
    ("reciprocal", lambda x: x.reciprocal(), None),
    ("number over it", lambda x: 1.0 / x, None),
    ("twice it", lambda x: x + x, None),
    ("times itself", lambda x: x * x, None),
    ("sum to a size", lambda x: x.sum_to_size(1), None),
    ("cast to bool", lambda x: x.bool(), None),
    ("cast to bool by type", lambda x: x.to(torch.bool), None),
    ("cast to integers", lambda x: (10 * x).int(), "{0}"),
    ("bits of another dtype", lambda x: x.view(torch.int32), None),
    ("positions, along a dim", lambda x: x.view(2, 4).max(1).indices, None),
    ("positions, by keyword", lambda x: x.view(2, 4).min(dim=1).indices, None),
    ("joined", lambda x: torch.cat([x, x * 2]), "{0}"),
    ("joined with R", lambda x: torch.stack([x, OTHER]), "{0}"),
    ("chosen by R", lambda x: torch.where(OTHER > 0, x, 0.5), "{0}"),
    ("filled where R says", lambda x: x.masked_fill(OTHER > 0, 7.0), "{0}"),
    ("chosen by it", lambda x: torch.where(x > 0, OTHER, 0.5), None),
    ("turned round", lambda x: x.flip(0), "{0}"),
    ("gathered", lambda x: x.gather(0, torch.tensor([3, 1])), "{0}"),
    ("gathered by it", lambda x: x.gather(0, x.view(torch.int64) % 3), None),
    ("elu", lambda x: torch.nn.functional.elu(x, 2.0), "{0}"),
    ("elu that falls", lambda x: torch.nn.functional.elu(x, -2.0), None),
    ("elu that falls, in place", lambda x: torch.nn.functional.elu_(x.clone(), alpha=-0.5), None),
    ("elu that falls, below nn", lambda x: torch.ops.aten.elu(x, 1.0, 1.0, -1.0), None),
    ("celu", lambda x: torch.nn.functional.celu(x, -0.5), "{0}"),
    ("softplus", lambda x: torch.nn.functional.softplus(x, beta=-2), "{0}"),
    ("softplus with a step", lambda x: torch.nn.functional.softplus(x, 1.0, 0.5), None),
    ("the lower triangle", lambda x: x.view(2, 4).tril(), "{0}"),
    ("all of numbers", lambda x: x.all(), None),
    ("any of numbers along a dim", lambda x: torch.any(x.round().int().view(2, 4), 1), None),
]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("call", "becomes"), [pytest.param(*case[1:], id=case[0]) for case in CALLS])
def test_a_call_keeps_turns_or_refuses_it_as_the_numbers_say(
    tp_mesh: Any, call: Callable[[Tensor], Tensor], becomes: str | None, kind: str
) -> None:
    pieces = torch.randn(RANKS, 8, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    with typecheck():
        x = spmd.assert_type(pieces[0].clone(), {"tp": P(kind)})
        spmd.assert_type(OTHER, {"tp": R})
        if becomes is None:
            with pytest.raises(SpmdTypeError, match=r"SW11[0-4]"):
                call(x)
            return
        other = "min" if kind == "max" else "max"
        after = becomes.format(kind, other)
        assert spmd.get_local_type(call(x)) == {spmd.normalize_axis("tp"): P(after)}
    torch.testing.assert_close(REDUCE[after](torch.stack([call(x) for x in pieces])), call(REDUCE[kind](pieces)))


@pytest.mark.parametrize("kind", KINDS)
def test_the_larger_of_two_takes_equal_values_and_its_own_kind(kind: str) -> None:
    rule = lookup("maximum")
    assert rule is not None
    for other in (R, P("max")):
        found = local_rule(rule, [Given("input", P(kind)), Given("other", other)])
        assert (found is P("max")) == (kind == "max")
    assert isinstance(local_rule(rule, [Given("input", P(kind)), Given("other", V)]), Refusal)
    assert isinstance(local_rule(rule, [Given("input", P(kind)), Given("other", P)]), Refusal)


@pytest.mark.parametrize("kind", KINDS)
def test_the_largest_of_a_pending_maximum_is_one(tp_mesh: Any, kind: str) -> None:
    with typecheck():
        x = spmd.assert_type(torch.randn(8), {"tp": P(kind)})
        found = x.max() if kind == "max" else x.min()
        assert spmd.get_local_type(found) == {spmd.normalize_axis("tp"): P(kind)}


def test_a_scaled_second_operand_is_not_taken_for_a_plain_one() -> None:
    rule = lookup("add")
    assert rule is not None
    operands = [Given("input", R), Given("other", P("max")), Given("alpha", Weak.CONSTANT, number=-1.0)]
    assert isinstance(local_rule(rule, operands), Refusal)


REDUCTIONS: list[tuple[str, Callable[[Tensor], Tensor], str]] = [
    ("amax", lambda x: x.amax(0), "max"),
    ("amin", lambda x: x.amin(0), "min"),
    ("max of all", lambda x: x.max(), "max"),
    ("max along a dim", lambda x: x.max(0).values, "max"),
    ("min along a dim", lambda x: x.min(dim=0, keepdim=True)[0], "min"),
    ("any", lambda x: (x > 1).any(0), "max"),
    ("all", lambda x: (x > -1).all(0), "min"),
    ("largest by absolute value", lambda x: torch.linalg.vector_norm(x, float("inf"), 0), "max"),
    ("both, the smallest", lambda x: x.aminmax(dim=0).min, "min"),
    ("both, the largest", lambda x: x.aminmax(dim=0).max, "max"),
]


@pytest.mark.parametrize(("call", "kind"), [pytest.param(*case[1:], id=case[0]) for case in REDUCTIONS])
def test_an_extreme_over_a_sharded_dim_is_pending(tp_mesh: Any, call: Callable[[Tensor], Tensor], kind: str) -> None:
    whole = torch.randn(4 * RANKS, 5, generator=torch.Generator().manual_seed(2))
    pieces = whole.chunk(RANKS)
    with typecheck(local=False):
        x = spmd.assert_type(pieces[0].clone(), {"tp": S(0)})
        assert spmd.get_local_type(call(x)) == {spmd.normalize_axis("tp"): P(kind)}
    each = torch.stack([call(piece) for piece in pieces])
    combined = each.to(torch.float32).amax(0) if kind == "max" else each.to(torch.float32).amin(0)
    torch.testing.assert_close(combined, call(whole).to(torch.float32))


def test_positions_beside_an_extreme_are_in_the_shard_and_of_no_use(tp_mesh: Any) -> None:
    with typecheck(local=False):
        x = spmd.assert_type(torch.randn(4, 5), {"tp": S(0)})
        found = x.max(0)
        with pytest.raises(SpmdTypeError, match="SW408"):
            found.indices + 1


def test_nobody_asked_for_it_where_partial_results_are_asked_for_by_name(tp_mesh: Any) -> None:
    with typecheck(local=False, partials="explicit"), pytest.raises(SpmdTypeError, match="SW404"):
        spmd.assert_type(torch.randn(4, 5), {"tp": S(0)}).amax(0)


@pytest.mark.parametrize(("asked", "kind"), [(torch.any, "max"), (torch.all, "min")])
def test_truth_values_are_pending_extremes_of_themselves(tp_mesh: Any, asked: Callable[..., Tensor], kind: str) -> None:
    pieces = torch.rand(RANKS, 3, 8, generator=torch.Generator().manual_seed(3)) > 0.7
    with typecheck():
        found = asked(spmd.assert_type(pieces[0].clone(), {"tp": P(kind)}), 1)
        assert spmd.get_local_type(found) == {spmd.normalize_axis("tp"): P(kind)}
    of_all = torch.any if kind == "max" else torch.all
    assert torch.equal(of_all(torch.stack([asked(x, 1) for x in pieces]), 0), asked(of_all(pieces, 0), 1))
