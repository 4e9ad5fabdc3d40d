"""Typed numbers: arithmetic follows the local rule while checking and is plain arithmetic otherwise."""

import copy
import operator
import pickle

import pytest
import torch

from shardwise.diagnostics.errors import SpmdTypeError
from shardwise.interop.annotations.scalar import Scalar
from shardwise.interop.running import session
from shardwise.interop.tensors.tagging import type_of
from shardwise.mesh.axis import MeshAxis
from shardwise.types.placement import I, P, R, S, V
from shardwise.types.tensor_type import UNKNOWN_TYPE, TensorType

DP, TP, ONE = MeshAxis.of(2, 4), MeshAxis.of(4, 1), MeshAxis.of(1, 1)
OPERATORS = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "//": operator.floordiv,
    "%": operator.mod,
    "**": operator.pow,
}


class Check:
    strict = local = True
    paused = False

    def __init__(self, collecting=False):
        self.collecting = collecting
        self.findings = []

    def report(self, error):
        self.findings.append(error.finding)


@pytest.fixture
def check():
    check = Check()
    before = session.enter(check)
    yield check
    session.enter(before)


def typed(place, value=3.0):
    return Scalar(value, {TP: place})


# Two scalars: left symbol right -> type, or the code of the error.
PAIRS = {
    "+": {
        (R, R): R, (R, I): "SW134", (R, V): V, (R, P): "SW113",
        (I, R): "SW134", (I, I): I, (I, V): "SW134", (I, P): "SW113",
        (V, R): V, (V, I): "SW134", (V, V): V, (V, P): "SW110",
        (P, R): "SW113", (P, I): "SW113", (P, V): "SW110", (P, P): P,
    },
    "*": {
        (R, R): R, (R, I): "SW134", (R, V): V, (R, P): P,
        (I, R): "SW134", (I, I): I, (I, V): "SW134", (I, P): "SW134",
        (V, R): V, (V, I): "SW134", (V, V): V, (V, P): "SW110",
        (P, R): P, (P, I): "SW134", (P, V): "SW110", (P, P): "SW111",
    },
    "/": {
        (R, R): R, (R, I): "SW134", (R, V): V, (R, P): "SW114",
        (I, R): "SW134", (I, I): I, (I, V): "SW134", (I, P): "SW114",
        (V, R): V, (V, I): "SW134", (V, V): V, (V, P): "SW114",
        (P, R): P, (P, I): "SW134", (P, V): "SW110", (P, P): "SW114",
    },
    "//": {
        (R, R): R, (R, I): "SW134", (R, V): V, (R, P): "SW112",
        (I, R): "SW134", (I, I): I, (I, V): "SW134", (I, P): "SW112",
        (V, R): V, (V, I): "SW134", (V, V): V, (V, P): "SW112",
        (P, R): "SW112", (P, I): "SW112", (P, V): "SW112", (P, P): "SW112",
    },
}  # fmt: skip
PAIRS["-"] = PAIRS["+"]
PAIRS["%"] = PAIRS["**"] = PAIRS["//"]
CASES = [(symbol, *pair, result) for symbol, row in PAIRS.items() for pair, result in row.items()]


@pytest.mark.parametrize(("symbol", "left", "right", "result"), CASES)
@pytest.mark.usefixtures("check")
def test_two_scalars_follow_the_local_rule(symbol, left, right, result):
    one, other = typed(left, 3.0), typed(right, 2.0)
    if isinstance(result, str):
        with pytest.raises(SpmdTypeError) as raised:
            OPERATORS[symbol](one, other)
        assert raised.value.code == result
        assert raised.value.finding.location.file == __file__
        assert not isinstance(raised.value, TypeError), "Python would try the reflected operator"
    else:
        made = OPERATORS[symbol](one, other)
        assert made.value == OPERATORS[symbol](3.0, 2.0)
        assert made.local_type == {TP: result}


# A plain number beside a pending sum: number on the right, number on the left.
NUMBERS = {
    "+": ("SW113", "SW113"),
    "-": ("SW113", "SW113"),
    "*": (P, P),
    "/": (P, "SW114"),
    "//": ("SW112", "SW112"),
    "%": ("SW112", "SW112"),
    "**": ("SW112", "SW112"),
}


@pytest.mark.parametrize("symbol", OPERATORS)
@pytest.mark.usefixtures("check")
def test_a_number_beside_a_pending_sum(symbol):
    apply = OPERATORS[symbol]
    for result, call in zip(NUMBERS[symbol], (lambda: apply(typed(P), 2), lambda: apply(2, typed(P))), strict=True):
        if result is P:
            assert call().local_type == {TP: P}
        else:
            with pytest.raises(SpmdTypeError) as raised:
                call()
            assert raised.value.code == result


@pytest.mark.parametrize("symbol", OPERATORS)
@pytest.mark.parametrize("place", [R, I, V])
@pytest.mark.usefixtures("check")
def test_a_number_takes_the_type_of_the_scalar(symbol, place):
    apply = OPERATORS[symbol]
    for made, value in ((apply(typed(place), 2), apply(3.0, 2)), (apply(2, typed(place)), apply(2, 3.0))):
        assert (made.value, made.local_type) == (value, {TP: place})


@pytest.mark.usefixtures("check")
def test_zero_may_be_added_to_a_pending_sum():
    assert sum([typed(P), typed(P)]).local_type == {TP: P}
    assert (typed(P) - 0).value == 3.0


@pytest.mark.usefixtures("check")
def test_signs_keep_the_type_and_abs_of_a_pending_sum_is_refused():
    assert [(-typed(P)).value, (-typed(P)).local_type] == [-3.0, {TP: P}]
    assert [(+typed(V)).value, (+typed(V)).local_type] == [3.0, {TP: V}]
    assert [abs(typed(V, -3)).value, abs(typed(V, -3)).local_type] == [3, {TP: V}]
    with pytest.raises(SpmdTypeError, match="abs is not linear") as raised:
        abs(typed(P))
    assert raised.value.code == "SW112"


@pytest.mark.usefixtures("check")
def test_axes_merge_one_by_one():
    made = Scalar(2, {DP: V, TP: P}) * Scalar(3, {TP: R, DP: R})
    assert made.local_type == {DP: V, TP: P}


@pytest.mark.usefixtures("check")
def test_scalars_must_speak_of_the_same_axes():
    with pytest.raises(SpmdTypeError, match="only one of them has a type on") as raised:
        Scalar(2, {TP: R}) + Scalar(2, {DP: R, TP: R})
    assert raised.value.code == "SW134"
    assert repr(DP) in str(raised.value)


def test_while_collecting_a_conflict_is_one_finding_and_the_result_unknown(check):
    check.collecting = True
    made = typed(P) * typed(P)
    again = made + typed(R) * abs(typed(P))
    assert [finding.code for finding in check.findings] == ["SW111", "SW112"]
    assert (made.value, again.value) == (9.0, 18.0)
    assert type_of(made) is type_of(again) is UNKNOWN_TYPE


@pytest.mark.parametrize("symbol", OPERATORS)
def test_without_checking_arithmetic_gives_plain_numbers(symbol):
    apply = OPERATORS[symbol]
    one, other = typed(P, 3), typed(V, 2)
    for made in (apply(one, other), apply(3, other), apply(one, 2)):
        assert made == apply(3, 2)
        assert type(made) is type(apply(3, 2))
    assert [type(made) for made in (-one, +one, abs(one))] == [int] * 3


@pytest.mark.parametrize("compare", [operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne])
@pytest.mark.parametrize("other", [2, 3.0, Scalar(3, {DP: V}), True])
def test_comparisons_compare_numbers(compare, other):
    plain = other.value if isinstance(other, Scalar) else other
    assert compare(typed(P), other) is compare(3.0, plain)


def test_a_scalar_is_unequal_to_what_is_no_number():
    assert typed(R) != "3.0"
    with pytest.raises(TypeError):
        _ = typed(R) < "3.0"


def test_a_scalar_converts_to_plain_numbers():
    assert (int(typed(V)), float(typed(V)), bool(typed(V)), bool(typed(V, 0))) == (3, 3.0, True, False)
    assert hash(typed(V)) == hash(3.0)


def test_a_scalar_prints_its_type():
    assert repr(Scalar(2.0, {TP: R})) == f"Scalar(2.0, {{{TP!r}: R}})"


def test_axes_of_one_rank_are_dropped_and_the_type_may_be_empty():
    assert Scalar(1, {ONE: P}).local_type == {}


def test_the_local_type_is_a_copy():
    x = typed(R)
    x.local_type[TP] = V
    assert x.local_type == {TP: R}


@pytest.mark.parametrize("value", [True, "2", None, torch.ones(()), [1]], ids=repr)
def test_only_numbers_are_scalars(value):
    with pytest.raises(TypeError, match="int, float or complex") as raised:
        Scalar(value, {TP: R})
    assert isinstance(raised.value, SpmdTypeError)
    assert type(value).__name__ in str(raised.value)
    assert raised.value.finding.location.file == __file__


@pytest.mark.parametrize("types", [{TP: S(0)}, {TP: "R"}, R, None, [(TP, R)]], ids=repr)
def test_only_local_types_are_types_of_scalars(types):
    with pytest.raises(TypeError, match="R, I, V or P") as raised:
        Scalar(1, types)
    assert raised.value.code == "SW132"


@pytest.mark.parametrize("again", [copy.copy, copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))])
def test_a_copy_of_a_scalar_is_the_same(again):
    x = again(Scalar(2.0, {TP: P, DP: V}))
    assert (x.value, x.local_type) == (2.0, {TP: P, DP: V})


TORCH_CALLS = [
    lambda x, s: x * s,
    lambda x, s: s * x,
    lambda x, s: s - x,
    lambda x, s: x / s,
    lambda x, s: s / x,
    lambda x, s: x**s,
    lambda x, s: s**x,
    lambda x, s: x < s,
    lambda x, s: s < x,
    lambda x, s: torch.add(x, s, alpha=s),
    lambda x, s: torch.full((2,), s),
    lambda x, s: x.clamp(min=s),
    lambda x, s: x.add_(s),
    lambda x, s: torch.addcmul(x, x, x, value=s),
    lambda x, s: torch.nn.functional.threshold(x, s, s),
]


@pytest.mark.parametrize("call", TORCH_CALLS)
def test_torch_functions_take_a_scalar_for_its_number(call):
    x = torch.tensor([1.0, 4.0])
    assert torch.equal(call(x.clone(), typed(V, 2.0)), call(x.clone(), 2.0))


def test_a_scalar_carries_a_tensor_type():
    assert type_of(Scalar(1, {DP: V})) is TensorType.of({DP: V})
