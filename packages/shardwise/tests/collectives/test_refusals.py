"""Is every wrong call refused with its code, the words people search for, and a remedy, before anything is sent?"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from shardwise import (
    I,
    P,
    R,
    S,
    SpmdTypeError,
    V,
    all_gather,
    all_reduce,
    all_to_all,
    convert,
    redistribute,
    reduce_scatter,
    reinterpret,
    shard,
    unshard,
)
from shardwise.op_rules.transitions import TRANSITIONS, find_transition

OPS = {op.__name__: op for op in (all_reduce, all_gather, reduce_scatter, all_to_all, convert, reinterpret)}
PLACEMENTS = (R, I, V, P, S(0), S(1))

pytestmark = pytest.mark.usefixtures("silent_tp")


def x(*shape: int, **options: Any) -> Tensor:
    return torch.zeros(*(shape or (8, 8)), **options)


REFUSED = [
    (op, src, dst)
    for op in OPS
    for src in PLACEMENTS
    for dst in PLACEMENTS
    if find_transition(op, src, dst) is None or (op == "convert" and {src, dst} == {S(0), S(1)})
]
EXPERT = [
    (op, src, dst)
    for (op, src_letter, dst_letter), move in TRANSITIONS.items()
    if move.expert
    for src in PLACEMENTS
    for dst in PLACEMENTS
    if find_transition(op, src, dst) is move and dst != S(1) and src != S(1)
]


@pytest.mark.parametrize(("op", "src", "dst"), REFUSED, ids=str)
def test_a_pair_without_a_row_is_refused(op: str, src: Any, dst: Any):
    with pytest.raises(ValueError, match=re.escape(op)) as caught:
        OPS[op](x(), "tp", src=src, dst=dst)
    assert isinstance(caught.value, SpmdTypeError)
    assert caught.value.code == "SW202"
    assert caught.value.finding.location.file == __file__


@pytest.mark.parametrize(("op", "src", "dst"), EXPERT, ids=str)
def test_a_rare_coercion_asks_for_expert_mode(op: str, src: Any, dst: Any):
    with pytest.raises(ValueError, match="expert_mode") as caught:
        OPS[op](x(), "tp", src=src, dst=dst)
    assert caught.value.code == "SW203"
    assert caught.value.help
    assert OPS[op](x(), "tp", src=src, dst=dst, expert_mode=True) is not None


def test_exactly_these_coercions_are_gated():
    gated = {(op, src, dst) for (op, src, dst), move in TRANSITIONS.items() if move.expert}
    assert gated == {
        ("reinterpret", "R", "I"),
        ("reinterpret", "R", "P"),
        ("reinterpret", "I", "R"),
        ("reinterpret", "R", "V"),
        ("convert", "R", "I"),
        ("convert", "I", "P"),
        ("convert", "V", "P"),
        ("convert", "S", "P"),
    }


def half(*shape: int) -> Tensor:
    return torch.zeros(*shape, dtype=torch.bfloat16, requires_grad=True)


NESTED = {"backward_options": {"y": 1}}

WRONG: list[tuple[str, Callable[[], Any], str, str]] = [
    # what, call, code, words
    ("replicate sum", lambda: all_reduce(x(), "tp", src=R, dst=R), "SW202", "must be P.*scaled by the axis size"),
    ("shard sum", lambda: all_reduce(x(), "tp", src=S(0), dst=R), "SW202", "must be P"),
    ("sum to shard", lambda: all_reduce(x(), "tp", dst=S(0)), "SW202", "must be R or I"),
    ("gather of R", lambda: all_gather(x(), "tp", src=R, dst=R), "SW202", r"must be V or S\(i\)"),
    ("gather of P", lambda: all_gather(x(), "tp", src=P, dst=R), "SW202", r"must be V or S\(i\)"),
    ("gather to V", lambda: all_gather(x(), "tp", src=S(0), dst=V), "SW202", "must be R or I"),
    ("scatter of I", lambda: reduce_scatter(x(), "tp", src=I, dst=V), "SW202", "must be P"),
    ("scatter to R", lambda: reduce_scatter(x(), "tp", dst=R), "SW202", r"must be V or S\(i\)"),
    ("exchange of R", lambda: all_to_all(x(), "tp", src=R, dst=V), "SW202", r"must be V or S\(i\)"),
    ("convert P to R", lambda: convert(x(), "tp", src=P, dst=R), "SW202", "all_reduce"),
    ("convert P to S", lambda: convert(x(), "tp", src=P, dst=S(0)), "SW202", "reduce_scatter"),
    ("convert V to R", lambda: convert(x(), "tp", src=V, dst=R), "SW202", "not supported"),
    ("convert S to S", lambda: convert(x(), "tp", src=S(0), dst=S(1)), "SW202", "all_to_all"),
    ("reinterpret S", lambda: reinterpret(x(), "tp", src=S(0), dst=P), "SW202", r"does not support S\(i\)"),
    ("reinterpret to S", lambda: reinterpret(x(), "tp", src=R, dst=S(0)), "SW202", r"does not support S\(i\)"),
    ("reinterpret P", lambda: reinterpret(x(), "tp", src=P, dst=R), "SW202", "not supported.*ill-defined"),
    ("reinterpret V", lambda: reinterpret(x(), "tp", src=V, dst=R), "SW202", "not supported.*cannot be asserted"),
    ("redistribute R to x", lambda: redistribute(x(), "tp", src=R, dst="S"), "SW202", "redistribute"),
    ("placement as string", lambda: all_reduce(x(), "tp", src="P", dst=R), "SW202", "not strings"),
    ("placement without dim", lambda: all_gather(x(), "tp", src=S, dst=R), "SW202", r"must be V or S\(i\)"),
    ("placement unhashable", lambda: all_gather(x(), "tp", src=[], dst=R), "SW202", r"must be V or S\(i\)"),
    ("unshard of V", lambda: unshard(x(), "tp", src=V, dst=R), "SW202", r"must be S\(i\)"),
    ("shard to V", lambda: shard(x(), "tp", src=R, dst=V), "SW202", r"must be S\(i\)"),
    ("uneven convert", lambda: convert(x(6), "tp", src=R, dst=S(0)), "SW204", "6 must be a multiple of the 4 ranks"),
    ("uneven convert of I", lambda: convert(x(2, 6), "tp", src=I, dst=S(-1)), "SW204", "dim 1 evenly"),
    ("uneven scatter", lambda: reduce_scatter(x(6), "tp", dst=S(0)), "SW204", "must be a multiple of"),
    ("uneven exchange", lambda: all_to_all(x(4, 6), "tp", src=S(0), dst=S(1)), "SW204", r"S\(0\) -> S\(1\).*dim 1.*6"),
    ("gather dims", lambda: all_gather(x(), "tp", src=S(0), dst=R, gather_dim=1), "SW205", "conflict"),
    ("scatter dims", lambda: reduce_scatter(x(), "tp", dst=S(0), scatter_dim=1), "SW205", "conflict"),
    ("split dim", lambda: all_to_all(x(), "tp", src=S(0), dst=S(1), split_dim=0), "SW205", "conflict"),
    ("concat dim", lambda: all_to_all(x(), "tp", src=S(0), dst=S(1), concat_dim=1), "SW205", "conflict"),
    ("convert entries", lambda: convert(x(6, 2), "tp", src=R, dst=V), "SW206", "one entry per rank along dim 0.*6"),
    ("scatter entries", lambda: reduce_scatter(x(6), "tp", dst=V), "SW206", "one entry per rank"),
    ("exchange entries", lambda: all_to_all(x(4, 6), "tp", split_dim=1), "SW206", "dim 1: its size is 6"),
    ("0-d scatter", lambda: reduce_scatter(torch.tensor(1.0), "tp", dst=V), "SW206", "0-d"),
    ("0-d convert", lambda: convert(torch.tensor(1.0), "tp", src=R, dst=V), "SW206", "0-d"),
    ("sum of sizes", lambda: convert(x(8), "tp", src=R, dst=S(0), split_sizes=[1, 2, 3, 4]), "SW206", "add up to 10"),
    ("count of sizes", lambda: convert(x(8), "tp", src=R, dst=S(0), split_sizes=[4, 4]), "SW206", "one.*per rank"),
    ("negative", lambda: reduce_scatter(x(8), "tp", dst=S(0), split_sizes=[9, -1, 0, 0]), "SW206", "non-negative"),
    ("own size", lambda: all_gather(x(8), "tp", src=S(0), dst=R, split_sizes=[8, 1, 8, 8]), "SW206", "rank 1.*holds 1"),
    ("exchange sizes", lambda: all_to_all(x(8), "tp", input_split_sizes=[1, 1, 1, 1]), "SW206", "add up to 4"),
    ("one side", lambda: all_to_all(x(6), "tp", input_split_sizes=[3, 1, 1, 1]), "SW204", "only one side"),
    ("sizes with V", lambda: all_gather(x(), "tp", dst=R, split_sizes=[1] * 4), "SW208", r"with src=S\(i\)"),
    ("sizes to V", lambda: reduce_scatter(x(4), "tp", split_sizes=[1] * 4), "SW208", r"with dst=S\(i\)"),
    ("sizes without S", lambda: convert(x(4), "tp", src=R, dst=V, split_sizes=[1] * 4), "SW208", "only supported"),
    ("sizes off dim 0", lambda: all_to_all(x(4, 4), "tp", split_dim=1, concat_dim=1, input_split_sizes=[1] * 4,
                                           output_split_sizes=[1] * 4), "SW208", "dim 0"),
    ("sizes of dims", lambda: redistribute(x(), "tp", src=S(0), dst=S(1), split_sizes=[2] * 4), "SW208", "all_to"),
    ("options", lambda: all_reduce(x(), "tp", dst=R, backward_options={"dtype": 1}), "SW208", "'dtype'.*op_dtype"),
    ("nested options", lambda: all_reduce(x(), "tp", dst=R, backward_options=NESTED), "SW208", "y"),
    ("options as list", lambda: all_reduce(x(), "tp", dst=R, backward_options=[1]), "SW208", "must be a dict"),
    ("dtype", lambda: all_reduce(x(), "tp", dst=R, op_dtype="bf16"), "SW208", "must be a torch.dtype"),
    ("in place dtype", lambda: all_reduce(x(), "tp", dst=R, inplace=True, out_dtype=torch.half), "SW208", "inplace"),
    ("leaf", lambda: all_reduce(x(4, requires_grad=True), "tp", dst=R, inplace=True), "SW208", "leaf"),
    ("narrow gather", lambda: all_gather(half(4), "tp", src=S(0), dst=R), "SW209", "bfloat16.*op_dtype"),
    ("narrow sum", lambda: all_reduce(half(4), "tp", dst=R), "SW209", "op_dtype"),
    ("narrow copy", lambda: convert(half(4), "tp", src=I, dst=R), "SW209", "op_dtype"),
    ("narrow I to V", lambda: reinterpret(half(4), "tp", src=I, dst=V), "SW209", "op_dtype"),
    ("narrow I to P", lambda: reinterpret(half(4), "tp", src=I, dst=P), "SW209", "op_dtype"),
    ("narrow wire", lambda: convert(x(4, requires_grad=True), "tp", src=I, dst=R, op_dtype=torch.half), "SW209", "16"),
    ("narrow in place", lambda: all_reduce(half(4) * 1, "tp", dst=R, inplace=True), "SW209", "op_dtype"),
    ("dim range", lambda: all_gather(x(), "tp", src=S(2), dst=R), "SW905", "out of range"),
    ("dim range of V", lambda: all_gather(x(), "tp", dst=R, gather_dim=3), "SW905", "out of range"),
    ("dim kind", lambda: all_gather(x(), "tp", dst=R, gather_dim="0"), "SW905", "must be an int"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "code", "words"), [row[1:] for row in WRONG], ids=[row[0] for row in WRONG])
def test_a_wrong_call_is_refused_before_anything_is_sent(call: Callable[[], Any], code: str, words: str):
    with pytest.raises(SpmdTypeError, match=words) as caught:
        call()
    assert caught.value.code == code
    assert isinstance(caught.value, (ValueError, TypeError))
    assert caught.value.finding is not None
    assert caught.value.message[0].islower() or caught.value.message.startswith(("S(", "R", "V"))
    assert not caught.value.message.endswith(".")


def test_the_remedy_names_the_axis_as_the_caller_wrote_it():
    with pytest.raises(SpmdTypeError) as caught:
        convert(x(), "tp", src=P, dst=R)
    assert caught.value.help == ('all_reduce(x, "tp", src=P, dst=R)',)


@pytest.mark.parametrize("options", [{"op_dtype": torch.float32}, {"op_dtype": torch.bfloat16}])
def test_the_precision_guard_is_content_with_any_choice(options: dict[str, Any]):
    assert convert(half(4), "tp", src=I, dst=R, backward_options=options).requires_grad


def test_the_precision_guard_is_silent_without_gradients():
    with torch.no_grad():
        assert not convert(half(4), "tp", src=I, dst=R).requires_grad
    assert not convert(half(4).detach(), "tp", src=I, dst=R).requires_grad


@pytest.mark.parametrize("op", [convert, redistribute])
@pytest.mark.parametrize(("src", "dst"), [(R, R), (I, I), (V, V), (P, P), (S(0), S(0)), (S(1), V), (V, S(1))], ids=str)
def test_the_same_placement_returns_the_operand_and_needs_no_group(op: Any, src: Any, dst: Any):
    operand = x()
    assert op(operand, "no such axis", src=src, dst=dst) is operand


@pytest.mark.parametrize("placement", [R, I, V, P])
def test_reinterpret_to_the_same_placement_returns_the_operand(placement: Any):
    operand = x()
    assert reinterpret(operand, "no such axis", src=placement, dst=placement) is operand


@pytest.mark.parametrize(("src", "dst"), [(I, R), (R, I)])
def test_a_coercion_that_changes_no_bit_does_not_copy_and_is_another_tensor(src: Any, dst: Any):
    for operand in (x(), x(requires_grad=True)):
        result = convert(operand, "tp", src=src, dst=dst, expert_mode=True)
        assert result is not operand
        assert result.data_ptr() == operand.data_ptr()
        assert (result.grad_fn is not None) == operand.requires_grad


@pytest.mark.parametrize(("src", "dst"), [(R, V), (R, S(0)), (I, S(0)), (I, V), (R, P)])
def test_a_piece_is_a_copy(src: Any, dst: Any):
    operand = x(4, 4)
    assert convert(operand, "tp", src=src, dst=dst).untyped_storage().data_ptr() != operand.untyped_storage().data_ptr()
