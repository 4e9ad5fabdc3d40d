"""What a call gets whose arguments no rule was written for: torch's own error, a type, or a finding."""

from __future__ import annotations

import numpy
import pytest
import torch

from shardwise.checker.operators import judging
from shardwise.checker.scopes.activation import checking, typecheck
from shardwise.collectives.annotate import assert_type
from shardwise.collectives.communicate import all_reduce
from shardwise.collectives.partial import sum as partial_sum
from shardwise.collectives.queries import typeof
from shardwise.diagnostics.errors import SpmdTypeError
from shardwise.diagnostics.result import Collector
from shardwise.mesh.axis import MeshAxis
from shardwise.mesh.current import set_current_mesh
from shardwise.types.placement import P, R, S


@pytest.fixture(autouse=True)
def mesh():
    with set_current_mesh({"tp": MeshAxis.of(2, 1)}):
        yield


FAILING = {
    "a list for a dim": lambda x: torch.movedim(x, [0, 1], [1, []]),
    "text for a dim": lambda x: torch.sum(x, dim="tp"),
    "a fraction for a dim": lambda x: torch.tensordot(x, x, dims=([0.5], [0])),
    "a number of no axis": lambda x: all_reduce(x),
}


@pytest.mark.parametrize("name", FAILING)
def test_torch_says_itself_what_it_does_not_take(name):
    call, x = FAILING[name], torch.ones(4, 4)
    with pytest.raises((TypeError, IndexError)) as plain:
        call(torch.ones(4, 4))
    with typecheck(local=False), pytest.raises(type(plain.value)) as checked:
        call(assert_type(x, {"tp": S(0)}))
    assert str(checked.value) == str(plain.value)


def test_whole_numbers_of_other_libraries_are_read_as_pythons():
    with typecheck(local=False):
        x = assert_type(torch.ones(4, 1, 3), {"tp": S(0)})
        assert str(typeof(x.squeeze(numpy.int64(1)))) == "f32[4@tp, 3]"
        assert str(typeof(x.reshape(numpy.int64(4), 3))) == str(typeof(x.reshape(4, 3)))


def test_more_pieces_than_memory_has_are_as_many_as_there_are_elements():
    with typecheck(local=False):
        parts = torch.ones(2, 3).unsafe_chunk(2**62)
        assert len(parts) == 2
        x = assert_type(torch.ones(2, 3), {"tp": S(1)})
        assert [str(typeof(part)) for part in x.unsafe_chunk(2**62)] == ["f32[1, 3@tp]"] * 2


def test_a_pending_maximum_may_be_the_end_of_a_range():
    with typecheck(), pytest.raises(SpmdTypeError, match="SW112"):
        torch.logspace(assert_type(torch.tensor(2.0), {"tp": P("max")}), 3.0, 2)


def test_an_operand_without_a_type_may_be_summed_over_an_axis_in_global_code():
    x = torch.ones(4)
    with typecheck(local=False):
        total = partial_sum(x, axis="tp")
        assert str(typeof(total)) == "f32[] {tp: P}"


@pytest.fixture
def unreadable(monkeypatch):
    """A rule that fails on arguments that torch takes."""

    def judge(*_):
        raise LookupError("dims")

    monkeypatch.setattr(judging, "_judge", judge)


@pytest.mark.usefixtures("unreadable")
def test_what_torch_takes_and_a_rule_does_not_is_a_finding_or_listed_as_lost():
    with typecheck(), pytest.raises(SpmdTypeError, match="cannot read the arguments of this call") as raised:
        torch.cumsum(assert_type(torch.ones(4), {"tp": R}), 0)
    assert raised.value.code == "SW301"
    collector, x = Collector(), torch.ones(4)
    with checking(strict=False, collect=collector):
        torch.cumsum(assert_type(x, {"tp": R}), 0)
    assert collector.result().findings == ()
    assert [one.what for one in collector.result().lost] == [
        "the result of cumsum, whose op rule cannot read these arguments"
    ]
