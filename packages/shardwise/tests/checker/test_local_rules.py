"""The type of an ordinary call along one axis, as a table, seen through real torch calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import shardwise as spmd
from shardwise import I, P, R, V
from shardwise.checker import typecheck

from .helpers import make, place, refused

NONLINEAR = {"R": "R", "I": "I", "V": "V", "P": "SW112"}
LINEAR = {"R": "R", "I": "I", "V": "V", "P": "P"}


@pytest.mark.parametrize("letter", "RIVP")
@pytest.mark.parametrize(
    ("call", "table"),
    [
        (torch.relu, NONLINEAR),
        (F.gelu, NONLINEAR),
        (lambda x: x**2, NONLINEAR),
        (lambda x: x.abs(), NONLINEAR),
        (lambda x: x > 0, NONLINEAR),
        (lambda x: F.layer_norm(x, (4,)), NONLINEAR),
        (lambda x: x.softmax(-1), NONLINEAR),
        (lambda x: x.max(), NONLINEAR),
        (lambda x: x + 1.0, {**LINEAR, "P": "SW113"}),
        (lambda x: 1.0 - x, {**LINEAR, "P": "SW113"}),
        (lambda x: x + 0, LINEAR),
        (lambda x: x * 2.0, LINEAR),
        (lambda x: 2.0 * x, LINEAR),
        (lambda x: x / 2, LINEAR),
        (lambda x: 2 / x, NONLINEAR),
        (lambda x: -x, LINEAR),
        (lambda x: x.sum(), LINEAR),
        (lambda x: x.mean(-1), LINEAR),
        (lambda x: x.nansum(), NONLINEAR),
        (lambda x: x[0], LINEAR),
        (lambda x: x[:, 1:3], LINEAR),
        (lambda x: x.t(), LINEAR),
        (lambda x: x.T, LINEAR),
        (lambda x: x.view(2, 8), LINEAR),
        (lambda x: x.reshape(-1), LINEAR),
        (lambda x: x.double(), LINEAR),
        (lambda x: x.to(torch.bfloat16), LINEAR),
        (lambda x: x.to(torch.int64), {**LINEAR, "P": "SW112"}),
        (lambda x: x.cumsum(0), LINEAR),
        (lambda x: x.cumsum(0, dtype=torch.int64), {**LINEAR, "P": "SW112"}),
        (lambda x: F.pad(x, (1, 1)), LINEAR),
        (lambda x: F.pad(x, (1, 1), value=1.0), {**LINEAR, "P": "SW113"}),
        (lambda x: x.tril(), LINEAR),
        (lambda x: torch.fft.fft(x), LINEAR),
        (lambda x: x.div(2, rounding_mode="floor"), {**LINEAR, "P": "SW112"}),
        (lambda x: x.masked_fill(torch.ones(4, 4).bool(), 0.0), LINEAR),
        (lambda x: x.masked_fill(torch.ones(4, 4).bool(), 1.0), {**LINEAR, "P": "SW113"}),
        (lambda x: x.detach(), LINEAR),
        (lambda x: x.clone(), LINEAR),
        (lambda x: x.contiguous(), LINEAR),
        (lambda x: torch.ops.aten.add.Tensor(x, x), LINEAR),
        (lambda x: torch.stack([x, x]), LINEAR),
        (lambda x: torch.cat([x, torch.zeros(1, 4)]), LINEAR),
        (lambda x: torch.cat([x, torch.ones(1, 4)]), {**LINEAR, "P": "SW113"}),
        (lambda x: F.dropout(x, 0.5, training=False), LINEAR),
        (lambda x: F.dropout(x, 0.0), LINEAR),
    ],
)
def test_one_operand(tp_mesh: Any, call: Callable[[Any], Any], table: dict[str, str], letter: str) -> None:
    x = make(letter)
    with typecheck():
        if table[letter].startswith("SW"):
            with refused(table[letter]):
                call(x)
        else:
            assert place(call(x)) == table[letter]


@pytest.mark.parametrize(
    ("call", "pairs"),
    [
        (
            torch.add,
            "RR:R II:I VV:V PP:P RV:V VR:V RP:SW113 PR:SW113 PV:SW110 VP:SW110 IP:SW101 PI:SW101",
        ),
        (torch.mul, "RR:R II:I VV:V PP:SW111 RV:V VR:V RP:P PR:P PV:SW110 VP:SW110 IP:SW101 PI:SW101"),
        (torch.matmul, "RR:R II:I VV:V PP:SW111 RV:V RP:P PR:P PV:SW110"),
        (torch.div, "RR:R VV:V PP:SW114 RV:V RP:SW114 PR:P VP:SW110"),
        (torch.maximum, "RR:R II:I VV:V PP:SW112 RP:SW112 RV:V"),
        (lambda a, b: torch.einsum("ij,jk->ik", a, b), "RR:R VV:V PP:SW111 RP:P PR:P RV:V"),
        (lambda a, b: torch.cat([a, b]), "RR:R II:I VV:V PP:P RP:SW113 RV:V"),
        (lambda a, b: torch.where(torch.ones(4, 4).bool(), a, b), "RR:R PP:P RP:SW113 VV:V PV:SW110"),
        (lambda a, b: torch.lerp(a, b, 0.5), "RR:R PP:P RP:SW113 VV:V"),
        (F.linear, "RR:R II:I VV:V PP:SW111 RP:P PR:P RV:V"),
        (lambda a, b: F.linear(torch.ones(4, 4), a, b[0]), "RR:R PP:P RP:SW113 PR:SW113 VV:V"),
        (lambda a, b: torch.outer(a[0], b[0]), "RR:R II:I VV:V PP:SW111 RV:V VR:V RP:P PR:P PV:SW110 IP:SW101"),
    ],
)
def test_two_operands(tp_mesh: Any, call: Callable[[Any, Any], Any], pairs: str) -> None:
    for pair in pairs.split():
        letters, _, expected = pair.partition(":")
        a, b = make(letters[0], grad=True), make(letters[1], grad=True)
        with typecheck():
            if expected.startswith("SW"):
                with refused(expected):
                    call(a, b)
            else:
                assert place(call(a, b)) == expected, pair


@pytest.mark.parametrize(
    ("first", "first_grad", "second", "second_grad", "expected"),
    [
        ("I", False, "R", False, "R"),
        ("I", True, "R", False, "I"),
        ("I", False, "R", True, "R"),
        ("I", True, "R", True, "SW101"),
        ("I", False, "V", True, "V"),
        ("I", True, "V", False, "SW101"),
        ("I", True, "V", True, "SW101"),
        ("I", False, "P", True, "P"),
        ("I", True, "P", True, "SW101"),
        ("R", True, "I", False, "R"),
    ],
)
@pytest.mark.parametrize("repeat", [1, 2], ids=["cold", "warm"])
def test_gradient_free_operands_take_the_flavour_that_is_needed(
    tp_mesh: Any, first: str, first_grad: bool, second: str, second_grad: bool, expected: str, repeat: int
) -> None:
    a, b = make(first, grad=first_grad), make(second, grad=second_grad)
    with typecheck():
        for _ in range(repeat):
            if expected.startswith("SW"):
                with refused(expected):
                    a * b
            else:
                assert place(a * b) == expected


def test_under_no_grad_invariant_and_replicate_mix(tp_mesh: Any) -> None:
    a, b = make("I", grad=True), make("R", grad=True)
    with typecheck():
        with torch.no_grad():
            assert place(a * b) == "R"
        with refused("SW101"):
            a * b
        with torch.no_grad():
            assert place(a * b) == "R"


@pytest.mark.parametrize(
    ("letters", "expected"),
    [("PPR", "P"), ("PRP", "P"), ("PRR", "SW113"), ("RPR", "SW113"), ("RRP", "SW113"), ("RPP", "SW111"), ("RVR", "V")],
)
@pytest.mark.parametrize("op", [torch.addmm, torch.baddbmm], ids=["addmm", "baddbmm"])
def test_a_sum_of_a_term_and_a_product(tp_mesh: Any, op: Callable[..., Any], letters: str, expected: str) -> None:
    shape = (4, 4) if op is torch.addmm else (2, 4, 4)
    operands = [make(letter, *shape) for letter in letters]
    with typecheck():
        if expected.startswith("SW"):
            with refused(expected):
                op(*operands)
        else:
            assert place(op(*operands)) == expected


@pytest.mark.parametrize("index", ["R", "I", "V"])
def test_index_tensors_are_no_linear_operands(tp_mesh: Any, index: str) -> None:
    x, at = make("P"), make(index, 2, dtype=torch.int64)
    with typecheck():
        if index == "V":
            with refused("SW110"):
                x.index_select(0, at)
        else:
            assert place(x.index_select(0, at)) == "P"
            assert place(x[at]) == "P"
            assert place(x.gather(0, at.view(1, 2))) == "P"


def test_axes_are_judged_one_by_one(mesh: Any) -> None:
    a = spmd.assert_type(torch.randn(4, 4), {"dp": V, "tp": P})
    b = spmd.assert_type(torch.randn(4, 4), {"dp": R, "tp": R})
    with typecheck():
        c = a * b
        assert spmd.get_local_type(c) == {spmd.normalize_axis("dp"): V, spmd.normalize_axis("tp"): P}
        with refused("SW112", "tp") as caught:
            c.relu()
    assert "dp" not in caught.value.finding.axis


def test_an_i_operand_is_told_to_convert(tp_mesh: Any) -> None:
    weight, x = make("I", grad=True), make("V", grad=True)
    with typecheck(), refused("SW101", 'convert(weight, "tp", src=I, dst=R)'):
        torch.matmul(x, weight)


def test_every_line_of_help_makes_the_call_pass(tp_mesh: Any) -> None:
    x = make("P")
    with typecheck():
        with refused("SW112") as caught:
            torch.relu(x)
        assert caught.value.finding.help
        for line in caught.value.finding.help:
            repaired = eval(
                line.partition(" before ")[0], {"all_reduce": spmd.all_reduce, "x": x, "P": P, "R": R, "I": I}
            )
            assert place(torch.relu(repaired)) in "RI"


def test_the_help_for_several_operands_mends_all_of_them(tp_mesh: Any) -> None:
    x, weight, bias = make("V"), make("I", 4, grad=True), make("I", 4, grad=True)
    with typecheck(), refused("SW101") as caught:
        torch.layer_norm(x, (4,), weight, bias)
    (help_line,) = caught.value.finding.help
    assert help_line.startswith(
        'convert(weight, "tp", src=I, dst=R) and convert(bias, "tp", src=I, dst=R) before layer_norm'
    )


@pytest.mark.parametrize(
    ("call", "condition"),
    [
        (lambda x, w, b: x + b, ", if x is no addend of a sum over tp; else b is added after that sum"),
        (lambda x, w, b: torch.lerp(b, x, 0.5), ", if x is no addend of a sum over tp; else b is added after that sum"),
        (
            lambda x, w, b: torch.nn.functional.linear(x, w, b),
            ", if what linear makes of x and w is no addend of a sum over tp; else b is added after that sum",
        ),
        (lambda x, w, b: x * b, ""),
        (lambda x, w, b: torch.matmul(x, b), ""),
    ],
    ids=["add", "lerp", "linear", "mul", "matmul"],
)
def test_what_varies_may_be_an_addend_to_which_nothing_is_added_per_rank(
    tp_mesh: Any, call: Any, condition: str
) -> None:
    """Each rank's product of shards is a term of a sum: with ``convert`` the bias would be in each of them."""
    x, w, b = make("V"), make("V"), make("I", 4, grad=True)
    with typecheck(), refused("SW101") as caught:
        call(x, w, b)
    (help_line,) = caught.value.finding.help
    assert help_line.startswith('convert(b, "tp", src=I, dst=R) before ')
    assert help_line.endswith(f"backward){condition}")
    assert [fix.choice for fix in caught.value.finding.fixes] in ([bool(condition)], [])


def test_a_shard_that_is_known_is_no_addend(tp_mesh: Any) -> None:
    x, b = spmd.assert_type(torch.randn(4, 4), {"tp": spmd.S(0)}), make("I", 4, grad=True)
    with typecheck(local=False), refused("SW101") as caught:
        x + b
    assert caught.value.finding.help[0].endswith("backward)")


def test_the_term_that_is_told_is_a_tensor_where_one_is_at_fault(tp_mesh: Any) -> None:
    partial, residual = make("P"), make("R")
    with typecheck(), refused("SW113", "lerp adds residual once per rank"):
        torch.lerp(partial, residual, 0.5)


def test_what_replaces_elements_of_a_pending_sum_is_put_in(tp_mesh: Any) -> None:
    partial, whole = make("P"), make("R")
    with typecheck():
        mask = whole > 0
        with refused("SW113", "masked_fill puts 1.5 in once per rank: partial is a partial sum over tp, 1.5 is not"):
            partial.masked_fill(mask, 1.5)
        with refused("SW113", "setitem puts 1.5 in once per rank"):
            partial[0] = 1.5


def test_gradients_that_torch_reads_go_by_the_names_of_their_parameters(tp_mesh: Any) -> None:
    scale, rows = make("I", 4, grad=True), torch.randn(8, 4, requires_grad=True)
    spmd.assert_type(rows, {"tp": spmd.S(0)})
    with typecheck(local=False):
        h = spmd.convert(scale, "tp", src=spmd.I, dst=spmd.R)
        spmd.all_reduce((rows * h).square().sum(), "tp", src=spmd.V, dst=spmd.I).backward()
        with refused("SW113", "clip_grad_norm_: stack adds scale.grad once per rank: rows.grad is a partial sum"):
            torch.nn.utils.clip_grad_norm_([scale, rows], 1.0)
        with refused("SW113", "stack adds tensors[0] once per rank: tensors[1] is a partial sum"):
            torch.stack([p.grad.norm() for p in (scale, rows)])  # type: ignore[union-attr]
        with refused("SW113", "stack adds tensors[0] once per rank: tensors[1] and tensors[2] are partial sums"):
            torch.stack([p.grad.norm() for p in (scale, rows, rows)])  # type: ignore[union-attr]


def test_the_annotation_that_is_suggested_names_the_axes_in_play(mesh: Any) -> None:
    x = spmd.assert_type(torch.ones(4), {"dp": spmd.V, "tp": spmd.R})
    y = torch.ones(4)
    y.__dict__.clear()
    with typecheck(), refused("SW102") as caught:
        x * y
    assert caught.value.finding.help[0].startswith('assert_type(y, {"dp": V, "tp": R}) where it is made')


@pytest.mark.parametrize("beta", [0, 0.0])
def test_a_term_that_is_multiplied_by_zero_is_no_operand(tp_mesh: Any, beta: float) -> None:
    scratch, x, weight = torch.empty(4, 4), make("P"), make("R")
    with typecheck():
        assert place(torch.addmm(scratch, x, weight, beta=beta)) == "P"
        with refused("SW113"):
            torch.addmm(make("R"), x, weight, beta=1)
