"""A reduction kind for which nothing has been derived: every place that decides handles it, or refuses it by name."""

import pytest
import torch
import torch.distributed as dist

import shardwise as spmd
from shardwise import I, P, R, S, V
from shardwise.checker import typecheck
from shardwise.checker.gradients.gradient_types import accumulated, is_gradient_of
from shardwise.oracle.local_types import check_claim
from shardwise.oracle.reassemble import Grid, deal, fold
from shardwise.types import SpmdTypeError
from shardwise.types.placement import ReductionKind
from shardwise.types.tensor_type import TensorType

from .helpers import place

PENDING = P(ReductionKind("invented"))
NAMED = r"P\(invented\)"


def make(shape, placement, *, grad=False):
    x = torch.ones(shape).requires_grad_(grad)
    x.__dict__.clear()  # made by a factory: forget that it is a constant
    return spmd.assert_type(x, {"tp": placement})


@pytest.mark.parametrize(
    "call",
    [
        lambda x: x * 2,
        lambda x: x + x,
        lambda x: -x,
        lambda x: x.relu(),
        lambda x: x.sum(),
        lambda x: x.view(-1),
        lambda x: x.clone(),
        lambda x: x @ x,
        lambda x: torch.cat([x, x]),
        lambda x: x.mul_(2),
        lambda x: torch.maximum(x, x),
        lambda x: torch._foreach_mul([x], 2.0),
    ],
)
def test_no_op_rule_takes_it_for_a_sum(tp_mesh, call):
    with typecheck():
        x = make((4, 4), PENDING)
        with pytest.raises(SpmdTypeError, match=f"{NAMED}.*the op rule of"):
            call(x)
    assert place(x) == repr(PENDING)
    assert x.tolist() == torch.ones(4, 4).tolist()


@pytest.mark.parametrize(
    ("op", "src", "dst"),
    [
        ("all_reduce", PENDING, R),
        ("all_reduce", PENDING, I),
        ("reduce_scatter", PENDING, S(0)),
        ("redistribute", PENDING, R),
        ("redistribute", PENDING, PENDING),
        ("convert", R, PENDING),
        ("reinterpret", V, PENDING),
    ],
)
def test_no_transition_makes_or_discharges_it(tp_mesh, op, src, dst):
    with typecheck():
        x = make((4, 4), src)
        with pytest.raises(SpmdTypeError, match=NAMED) as caught:
            getattr(spmd, op)(x, "tp", src=src, dst=dst)
    assert caught.value.code == "SW202"


def test_a_typed_all_reduce_of_the_sum_refuses_it_as_its_operand(tp_mesh):
    with typecheck(), pytest.raises(SpmdTypeError, match=NAMED) as caught:
        spmd.all_reduce(make((4, 4), PENDING), "tp", src=P, dst=R)
    assert caught.value.code == "SW201"


def test_raw_collectives_name_it(tp_mesh):
    with typecheck(), pytest.raises(SpmdTypeError, match=f"{NAMED}.*all_reduce is not defined"):
        dist.all_reduce(make((4, 4), PENDING))


def test_no_gradient_flows_through_it(tp_mesh):
    with typecheck(), pytest.raises(SpmdTypeError, match=f"{NAMED}.*backward is not defined"):
        make((), PENDING, grad=True).backward()
    type = TensorType.of({spmd.normalize_axis("tp"): PENDING})
    with pytest.raises(SpmdTypeError, match=f"{NAMED}.*adding gradients"):
        accumulated(type, type)
    with pytest.raises(SpmdTypeError, match=f"{NAMED}.*a gradient"):
        is_gradient_of(PENDING, V)
    assert not is_gradient_of(P, PENDING)
    assert not is_gradient_of(V, PENDING)
    assert not is_gradient_of(R, PENDING)


@pytest.mark.parametrize(
    "call", [lambda x: x + 1, lambda x: 2 * x, lambda x: x / 2, lambda x: x * x, lambda x: x + x, lambda x: abs(x)]
)
def test_scalars_refuse_it(tp_mesh, call):
    with typecheck(), pytest.raises(SpmdTypeError):
        call(spmd.Scalar(2.0, {"tp": PENDING}))


def test_reading_its_value_is_reading_a_pending_reduction(tp_mesh):
    with typecheck(), pytest.raises(SpmdTypeError) as caught:
        make((), PENDING).item()
    assert caught.value.code == "SW115"


def test_it_is_not_overwritten_by_anything_else_and_nothing_is_by_it(tp_mesh):
    with typecheck():
        for destination, source in [(PENDING, R), (PENDING, P), (P, PENDING), (R, PENDING), (PENDING, V)]:
            with pytest.raises(SpmdTypeError, match=NAMED):
                make((4,), destination).copy_(make((4,), source))


def test_dtensor_has_no_placement_for_it():
    with pytest.raises(SpmdTypeError, match=f"{NAMED} has no DTensor placement"):
        spmd.spmd_type_to_dtensor_placement(PENDING)


def test_the_oracle_does_not_deal_it_as_addends_nor_sum_it():
    grid = Grid.of({"tp": 2})
    type = TensorType.of({grid.axes["tp"]: PENDING})
    with pytest.raises(SpmdTypeError, match=f"{NAMED}.*oracle"):
        deal(torch.ones(4), type, grid, torch.Generator())
    with pytest.raises(SpmdTypeError, match=f"{NAMED}.*oracle"):
        fold({0: torch.ones(4), 1: torch.ones(4)}, type)
    with pytest.raises(SpmdTypeError, match=f"{NAMED}.*oracle"):
        check_claim(lambda x: x, [torch.ones(4)], [PENDING], P)
    with pytest.raises(SpmdTypeError, match=f"{NAMED}.*oracle"):
        check_claim(lambda x: x, [torch.ones(4)], [R], PENDING)


def test_it_is_annotated_asked_for_and_printed_under_its_name(tp_mesh):
    x = make((4,), PENDING)
    assert place(x) == repr(PENDING)
    assert str(spmd.typeof(x)) == "f32[4] {tp: P(invented)}"
    with pytest.raises(SpmdTypeError, match=f"{NAMED}"):
        spmd.assert_type(x, {"tp": P})
