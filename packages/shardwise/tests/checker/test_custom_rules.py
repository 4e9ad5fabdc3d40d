"""An operator that the registry does not know is never guessed at; its author declares it once."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import shardwise as spmd
from shardwise.checker.scopes.activation import checking
from shardwise.diagnostics.result import Collector
from shardwise.rules import register_rule

from .helpers import make, place, refused


@torch.library.custom_op("shardwise_tests::accumulate", mutates_args=())
def accumulate(out: torch.Tensor, index: torch.Tensor, src: torch.Tensor) -> torch.Tensor:
    return out.scatter_add(0, index, src)


@torch.library.custom_op("shardwise_tests::unheard_of", mutates_args=())
def unheard_of(x: torch.Tensor, scale: float) -> torch.Tensor:
    return x * scale


def index() -> torch.Tensor:
    return spmd.assert_type(torch.zeros(4, 4, dtype=torch.int64), {"tp": spmd.R})


@pytest.mark.usefixtures("tp_mesh")
def test_an_operator_without_a_rule_says_how_to_declare_one():
    with spmd.typecheck(), refused("SW301", 'register_rule("shardwise_tests.unheard_of", "x scale")'):
        unheard_of(make("V"), 2.0)


@torch.library.custom_op("shardwise_tests::of_a_list", mutates_args=())
def of_a_list(xs: list[torch.Tensor]) -> torch.Tensor:
    return torch.stack(xs).square().sum(0)


@pytest.mark.usefixtures("tp_mesh")
def test_an_operator_without_a_rule_is_refused_for_what_is_in_a_list():
    with spmd.typecheck(), refused("SW301", "of_a_list"):
        of_a_list([make("P"), make("P")])


@pytest.mark.usefixtures("tp_mesh")
def test_a_declared_operator_types_by_its_own_law():
    register_rule("shardwise_tests.accumulate", "out index src", linear="out + src")
    with spmd.typecheck():
        assert place(accumulate(make("R"), index(), make("R"))) == "R"
        assert place(accumulate(make("R"), index(), make("V"))) == "V"
        assert place(accumulate(make("P"), index(), make("P"))) == "P"
        with refused("SW113"):
            accumulate(make("R"), index(), make("P"))


@pytest.mark.usefixtures("tp_mesh")
def test_a_rule_may_come_after_a_refused_call_and_is_listed_as_trusted():
    @torch.library.custom_op("shardwise_tests::declared_late", mutates_args=())
    def late(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    with spmd.typecheck():
        with refused("SW301"):
            late(make("V"))
        register_rule("shardwise_tests.declared_late", "x", linear="x")
        assert place(late(make("P"))) == "P"
    collector = Collector(mesh="", script="", rank=0)
    with checking(collect=collector):
        late(make("V"))
    assert any("shardwise_tests.declared_late" in str(trusted) for trusted in collector.result().trusted)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("add", "input other"), "has a rule for 'add'"),
        (("shardwise_tests.bad", "x", "y"), "not in params"),
        (("shardwise_tests.taken", "x y"), "with another rule"),
    ],
)
def test_a_rule_that_cannot_be_is_refused(arguments: Any, words: str):
    register_rule("shardwise_tests.taken", "x")
    with pytest.raises(ValueError, match=words) as raised:
        register_rule(*arguments)
    assert isinstance(raised.value, spmd.SpmdTypeError)
    assert raised.value.code == "SW304"


@pytest.mark.usefixtures("tp_mesh")
def test_what_follows_an_operator_without_a_rule_is_no_finding():
    collector = Collector(mesh="", script="", rank=0)
    with checking(collect=collector):
        unknown = unheard_of(make("V"), 2.0)
        moved = spmd.all_reduce(unknown, "tp", src=spmd.P, dst=spmd.R)
        moved + make("I")
        moved + make("V")
    assert [finding.code for finding in collector.result().findings] == ["SW301"]
