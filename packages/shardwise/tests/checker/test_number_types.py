"""What numbers of several ranks make: an addend stays one only where the sum over the ranks is that of one device."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable

import pytest

from shardwise import P, R, V
from shardwise.checker.state.number_types import merged
from shardwise.mesh.axis import MeshAxis
from shardwise.types.placement import Placement
from shardwise.types.tensor_type import Exponent, TensorType

AXIS = MeshAxis.of(2, 1)
Held = Callable[[int], list[float]]


def addends(of: float, exponent: int) -> Held:
    """Numbers of the ranks that add up to ``of`` on any number of them, times a power of that."""
    return lambda ranks: [of * ranks**exponent * (rank + 1) / (ranks * (ranks + 1) / 2) for rank in range(ranks)]


def equal(of: float, exponent: int) -> Held:
    return lambda ranks: [of * ranks**exponent] * ranks


KINDS: dict[str, tuple[Placement, Callable[[float, int], Held]]] = {"addends": (P, addends), "equal": (R, equal)}
OPERATIONS = [(operator.add, 0), (operator.sub, 0), (operator.mul, 1), (operator.truediv, -1)]


def denoted(values: list[float], place: Placement) -> float:
    return sum(values) if place is P else values[0]


@pytest.mark.parametrize(("apply", "sign"), OPERATIONS, ids=lambda value: getattr(value, "__name__", ""))
@pytest.mark.parametrize("kinds", itertools.product(KINDS, KINDS), ids=" and ".join)
@pytest.mark.parametrize("exponents", itertools.product((-1, 0, 1), repeat=2))
def test_what_is_said_of_the_result_is_so_on_any_number_of_ranks(apply, sign, kinds, exponents):
    places, held = zip(
        *(
            (KINDS[kind][0], KINDS[kind][1](value, exponent))
            for kind, value, exponent in zip(kinds, (3.0, 5.0), exponents, strict=True)
        ),
        strict=True,
    )
    types = [TensorType.of({AXIS: place}, scale={AXIS: e}) for place, e in zip(places, exponents, strict=True)]
    made = merged(types[0], types[1], sign)
    place, exponent = made.get(AXIS), made.exponent(AXIS)
    if place is V:
        assert P in places, "what is equal everywhere makes what is"
        return
    if exponent is None:
        assert exponents[0] != exponents[1], "what is on one scale has it"
        return
    of_one = apply(3.0, 5.0)
    for ranks in (2, 3):
        results = [apply(one, two) for one, two in zip(held[0](ranks), held[1](ranks), strict=True)]
        assert denoted(results, place) == pytest.approx(of_one * ranks**exponent)


@pytest.mark.parametrize(
    ("one", "two", "sign", "made"),
    [
        ((P, 0), (P, 0), 0, (P, 0)),
        ((P, 0), (R, -1), 0, (P, 0)),
        ((P, 0), (R, 0), 0, (V, None)),
        ((P, 0), (R, -1), -1, (P, 1)),
        ((R, 0), (P, 0), 1, (P, 0)),
        ((R, 0), (P, 0), -1, (V, None)),
        ((P, 0), (P, 0), 1, (V, None)),
        ((P, 0), (V, 0), 0, (V, None)),
    ],
)
def test_an_addend_is_one_for_as_long_as_that_is_known(
    one: tuple[Placement, Exponent], two: tuple[Placement, Exponent], sign: int, made: tuple[Placement, Exponent]
) -> None:
    first, second = (TensorType.of({AXIS: place}, scale={AXIS: exponent}) for place, exponent in (one, two))
    result = merged(first, second, sign)
    assert (result.get(AXIS), result.exponent(AXIS)) == made
