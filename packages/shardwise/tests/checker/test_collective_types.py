"""What the checker asks of typed and of raw collectives."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.distributed as dist

import shardwise as spmd
from shardwise import I, P, R, S, V
from shardwise import PerMeshAxisLocalSpmdType as Local
from shardwise.checker import typecheck

from .helpers import make, place, refused

MOVES = [
    ("all_reduce", P, R),
    ("all_reduce", P, I),
    ("all_gather", V, R),
    ("all_gather", S(0), R),
    ("all_gather", S(1), I),
    ("reduce_scatter", P, V),
    ("reduce_scatter", P, S(0)),
    ("all_to_all", V, V),
    ("all_to_all", S(0), S(1)),
    ("convert", I, R),
    ("convert", R, V),
    ("convert", R, S(0)),
    ("convert", I, S(1)),
    ("convert", R, P),
    ("reinterpret", V, P),
    ("reinterpret", I, V),
    ("reinterpret", I, P),
    ("redistribute", P, S(0)),
    ("redistribute", S(0), R),
    ("redistribute", R, S(1)),
    ("shard", I, S(0)),
    ("unshard", S(0), R),
]


def letter(placement: Any) -> str:
    return "V" if isinstance(placement, S) else repr(placement)


@pytest.mark.parametrize(("op", "src", "dst"), MOVES, ids=str)
@pytest.mark.parametrize("actual", "RIVP")
def test_the_operand_must_be_src_and_the_result_is_dst(tp_mesh: Any, op: str, src: Any, dst: Any, actual: str) -> None:
    x = make(actual, grad=True)
    want = letter(src)
    reads_as_sum = want == "P" and actual == "V" and op in ("all_reduce", "reduce_scatter", "redistribute")
    with typecheck():
        if actual == want or reads_as_sum:
            assert place(getattr(spmd, op)(x, "tp", src=src, dst=dst)) == letter(dst)
        else:
            with refused("SW201", "x", "tp", actual):
                getattr(spmd, op)(x, "tp", src=src, dst=dst)


@pytest.mark.parametrize("actual", "RI")
def test_replicate_and_invariant_are_one_where_no_gradient_flows(tp_mesh: Any, actual: str) -> None:
    x = make(actual)
    with typecheck():
        assert place(spmd.convert(x, "tp", src=I, dst=R)) == "R"
        assert place(spmd.convert(x, "tp", src=R, dst=S(0))) == "V"


def test_reducing_a_complete_value_is_told_with_the_factor(tp_mesh: Any) -> None:
    x = make("R")
    with typecheck(), refused("SW201", "multiplies it by 4"):
        spmd.all_reduce(x, "tp", src=P, dst=R)


def test_reducing_twice_is_told(tp_mesh: Any) -> None:
    x = make("P")
    with typecheck():
        once = spmd.all_reduce(x, "tp", dst=R)
        with refused("SW201", "once"):
            spmd.all_reduce(once, "tp", dst=R)


def test_the_wrong_axis_is_told(mesh: Any) -> None:
    x = spmd.assert_type(torch.randn(4, 4), {"dp": R, "tp": P})
    with typecheck(), refused("SW201", "dp"):
        spmd.all_reduce(x, "dp", dst=R)


def test_an_axis_without_a_type_is_an_error_in_strict_mode(mesh: Any) -> None:
    x = spmd.assert_type(torch.randn(4, 4), {"dp": V})
    with typecheck(), refused("SW207", "tp"):
        spmd.all_reduce(x, "tp", dst=R)
    with typecheck("permissive"):
        y = spmd.all_reduce(x, "tp", dst=R)
        assert (place(y, "dp"), place(y)) == ("V", "")


def test_a_flattened_axis_stands_for_its_parts(mesh: Any) -> None:
    whole = dist.group.WORLD
    x = spmd.assert_type(torch.randn(4, 4), {"dp": P, "tp": P})
    y = spmd.assert_type(torch.randn(4, 4), {"dp": P, "tp": R})
    with typecheck():
        summed = spmd.all_reduce(x, whole, dst=R)
        assert (place(summed, "dp"), place(summed)) == ("R", "R")
        with refused("SW201", "tp"):
            spmd.all_reduce(y, whole, dst=R)


def test_a_gather_on_another_dim_than_the_sharded_one_is_told(tp_mesh: Any) -> None:
    x = spmd.assert_type(torch.randn(4, 4), {"tp": S(0)})
    with typecheck():
        with refused("SW212", "dim 1", "dim 0"):
            spmd.all_gather(x, "tp", src=S(1), dst=R)
        spmd.all_gather(x, "tp", src=S(-2), dst=R)


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda x: spmd.all_reduce(x, "tp", src=R, dst=R), ValueError),
        (lambda x: spmd.all_reduce(x, "tp", dst=V), ValueError),
        (lambda x: spmd.reinterpret(x, "tp", src=P, dst=R), ValueError),
        (lambda x: spmd.convert(x, "tp", src=R, dst=I), ValueError),
        (lambda x: spmd.all_gather(x, "nonsense", dst=R), spmd.SpmdTypeError),
    ],
)
def test_a_call_that_cannot_be_meant_is_refused_with_a_finding(tp_mesh: Any, call: Any, error: type) -> None:
    x = make("P")
    for context in (typecheck, lambda: typecheck("permissive")):
        with context(), pytest.raises(error) as caught:
            call(x)
        assert caught.value.finding.code.startswith(("SW2", "SW9"))


def test_an_in_place_reduction_retypes_its_operand_and_views(tp_mesh: Any) -> None:
    x = make("P")
    with typecheck():
        view = x[0]
        y = spmd.all_reduce(x, "tp", dst=R, inplace=True)
        assert y is x
        assert (place(x), place(view)) == ("R", "R")


@pytest.mark.parametrize(
    ("actual", "op", "after"),
    [
        ("P", dist.ReduceOp.SUM, "R"),
        ("V", dist.ReduceOp.SUM, "R"),
        ("V", dist.ReduceOp.MAX, "R"),
        ("R", dist.ReduceOp.MAX, "R"),
        ("P", dist.ReduceOp.MAX, "SW210"),
        ("P", dist.ReduceOp.PRODUCT, "SW210"),
        ("R", dist.ReduceOp.SUM, "SW201"),
        ("I", dist.ReduceOp.SUM, "SW201"),
    ],
)
def test_raw_all_reduce(tp_mesh: Any, actual: str, op: Any, after: str) -> None:
    x = make(actual)
    with typecheck():
        if after.startswith("SW"):
            with refused(after):
                dist.all_reduce(x, op=op, group=tp_mesh.get_group("tp"))
            assert place(x) == actual
        else:
            dist.all_reduce(x, op, tp_mesh.get_group("tp"))
            assert place(x) == after


def test_other_raw_collectives(tp_mesh: Any) -> None:
    group = tp_mesh.get_group("tp")
    with typecheck():
        pieces = [torch.empty(4, 4) for _ in range(4)]
        dist.all_gather(pieces, make("V"), group=group)
        assert [place(piece) for piece in pieces] == ["R"] * 4
        whole = torch.empty(16, 4)
        dist.all_gather_into_tensor(whole, make("V"), group=group)
        assert place(whole) == "R"
        part = torch.empty(1, 4)
        dist.reduce_scatter_tensor(part, make("P"), group=group)
        assert place(part) == "V"
        exchanged = torch.empty(4, 4)
        dist.all_to_all_single(exchanged, make("V"), group=group)
        assert place(exchanged) == "V"
        x = make("V")
        dist.broadcast(x, 0, group=group)
        assert place(x) == "R"
        with refused("SW210"):
            dist.broadcast(make("P"), 0, group=group)
        dist.barrier(group)


def test_functional_collectives_have_the_right_type(tp_mesh: Any) -> None:
    funcol = torch.distributed._functional_collectives
    group = tp_mesh.get_group("tp")
    with typecheck():
        summed = funcol.all_reduce(make("P"), "sum", group)
        assert place(summed + make("R")) == "R"
        gathered = funcol.all_gather_tensor(make("V"), 0, group)
        assert place(gathered * 1) == "R"
        scattered = funcol.reduce_scatter_tensor(make("P"), "sum", 0, group)
        assert place(scattered * 1) == "V"
        with refused("SW210"):
            funcol.all_reduce(make("P"), "max", group)


@pytest.mark.parametrize("letters", ["VV", "RV", "VR", "RR", "II"])
def test_a_partial_contraction_needs_both_operands_sharded(tp_mesh: Any, letters: str) -> None:
    x, weight = make(letters[0], grad=True), make(letters[1], grad=True)
    with typecheck():
        if letters == "VV":
            assert place(spmd.linear(x, weight, out_partial_axes="tp")) == "P"
            assert place(spmd.matmul(x, weight, out_partial_axes="tp")) == "P"
            assert place(spmd.einsum("ij,jk->ik", x, weight, out_partial_axes=("tp",))) == "P"
            assert place(spmd.linear(x, weight, "tp", S(1), P)) == "P"
            assert place(spmd.sum(x, "tp", src=S(0), dst=P)) == "P"
        else:
            with refused("SW135", "tp"):
                spmd.linear(x, weight, out_partial_axes="tp")


@pytest.mark.parametrize(("bias", "expected"), [("R", "SW113"), ("P", "P"), ("V", "SW110")])
def test_a_bias_inside_a_partial_contraction_must_be_partial(tp_mesh: Any, bias: str, expected: str) -> None:
    x, weight, b = make("V", grad=True), make("V", grad=True), make(bias, 4, grad=True)
    with typecheck():
        if expected == "P":
            assert place(spmd.linear(x, weight, b, out_partial_axes="tp")) == "P"
        else:
            with refused(expected, "b"):
                spmd.linear(x, weight, b, out_partial_axes="tp")


def test_local_letters_are_the_enum() -> None:
    assert {letter.value for letter in Local} == set("RIVP")


@pytest.mark.parametrize(
    ("call", "placement", "types"),
    [
        (spmd.shard, "V", {"src": I, "dst": S(0)}),
        (spmd.unshard, "P", {"src": S(0), "dst": R}),
        (spmd.invariant_to_replicate, "V", {}),
    ],
    ids=["shard", "unshard", "invariant_to_replicate"],
)
def test_a_short_form_is_reported_under_the_name_that_was_called(
    tp_mesh: Any, call: Any, placement: str, types: dict[str, Any]
) -> None:
    with typecheck(), refused("SW201", f"{call.__name__} expects"):
        call(make(placement), "tp", **types)


def test_short_forms_give_the_types_of_what_they_stand_for(tp_mesh: Any) -> None:
    with typecheck():
        assert place(spmd.shard(make("I"), "tp", src=I, dst=S(0))) == "V"
        assert place(spmd.unshard(make("V"), "tp", src=S(0), dst=R)) == "R"
        assert place(spmd.invariant_to_replicate(make("I"), "tp")) == "R"
