"""The per-axis types, their duals, and S(i)."""

import copy
import dataclasses
import pickle

import pytest

from shardwise.diagnostics.errors import SpmdTypeError
from shardwise.types import placement as p


@pytest.mark.parametrize(("place", "dual"), [(p.R, p.P), (p.P, p.R), (p.I, p.I), (p.V, p.V), (p.S(1), p.S(1))])
def test_the_gradient_has_the_dual_type_and_its_gradient_the_first_one_again(place, dual):
    assert place.backward_type() == dual
    assert place.backward_type().backward_type() == place


@pytest.mark.parametrize(
    ("short", "long", "text"),
    [(p.R, p.Replicate, "R"), (p.I, p.Invariant, "I"), (p.V, p.Varying, "V"), (p.P, p.Partial, "P")],
)
def test_a_local_type_is_one_object_and_prints_one_letter(short, long, text):
    assert short is long is p.PerMeshAxisLocalSpmdType(text)
    assert f"{short}" == str(short) == repr(short) == short.value == text
    assert pickle.loads(pickle.dumps(short)) is copy.deepcopy(short) is short


def test_a_shard_is_a_value():
    assert p.S is p.Shard
    assert p.S(1) == p.S(1) != p.S(2)
    assert hash(p.S(1)) == hash(p.S(1))
    assert p.S(1) != 1
    assert str(p.S(-1)) == repr(p.S(-1)) == "S(-1)"
    assert not isinstance(p.S(0), p.PerMeshAxisLocalSpmdType)
    with pytest.raises(dataclasses.FrozenInstanceError, match="dim"):
        p.S(1).dim = 2


@pytest.mark.parametrize("wrong", ["0", None, 1.0, True])
def test_a_shard_takes_an_int(wrong):
    with pytest.raises(TypeError, match=f"got {wrong!r} of type {type(wrong).__name__}"):
        p.S(wrong)


def test_a_shard_is_locally_varying():
    assert p.to_local_type(p.S(0)) is p.V
    assert [p.to_local_type(place) for place in (p.R, p.I, p.V, p.P)] == [p.R, p.I, p.V, p.P]


@pytest.mark.parametrize(("dim", "ndim", "expected"), [(0, 1, 0), (-1, 3, 2), (-3, 3, 0), (2, 3, 2)])
def test_negative_dims_count_from_the_end(dim, ndim, expected):
    assert p.resolve_dim(p.S(dim), ndim) == expected


@pytest.mark.parametrize(("dim", "ndim"), [(1, 1), (-2, 1), (0, 0), (-1, 0)])
def test_a_dim_out_of_range_is_refused_with_the_shard_and_the_ndim(dim, ndim):
    with pytest.raises(SpmdTypeError, match=rf"S\({dim}\).* ndim {ndim}") as caught:
        p.resolve_dim(p.S(dim), ndim)
    assert caught.value.code == "SW132"


PROPERTIES = ("is_equal", "is_varying", "is_partial", "is_unknown")


@pytest.mark.parametrize(
    ("place", "true"),
    [
        (p.R, "is_equal"),
        (p.I, "is_equal"),
        (p.V, "is_varying"),
        (p.S(0), "is_varying"),
        (p.P, "is_partial"),
        (p.P(p.ReductionKind("invented")), "is_partial"),
        (p.UNKNOWN, "is_unknown"),
    ],
)
def test_a_placement_has_exactly_one_property_and_a_kind_exactly_if_it_is_partial(place, true):
    assert [name for name in PROPERTIES if getattr(place, name)] == [true]
    assert (place.reduction is not None) == place.is_partial


@pytest.mark.parametrize("place", [p.R, p.I, p.V, p.P, p.S(1), p.UNKNOWN])
def test_the_dual_of_the_dual_is_the_placement_and_equality_of_what_varies_is_kept(place):
    assert place.dual.dual == place
    assert place.dual == place.backward_type()
    assert place.dual.is_varying == place.is_varying
    assert place.is_pending_sum("a test") == (place is p.P)


def test_the_sum_is_the_kind_of_p_and_a_further_kind_is_one_more_interned_placement(monkeypatch):
    assert p.P.reduction is p.SUM
    assert p.P("sum") is p.Partial(p.SUM) is p.P
    kind = p.ReductionKind("invented")
    monkeypatch.setitem(p.KINDS, "invented", kind)
    place = p.P("invented")
    assert place is p.P(kind) is not p.P
    assert place.reduction is kind
    assert f"{place}" == repr(place) == place.value == place.name == "P(invented)"
    assert p.PerMeshAxisLocalSpmdType("P(invented)") is place
    assert pickle.loads(pickle.dumps(place)) is copy.deepcopy(place) is copy.copy(place) is place
    assert isinstance(place, p.PerMeshAxisLocalSpmdType)
    assert list(p.PerMeshAxisLocalSpmdType) == [p.R, p.I, p.V, p.P]


def test_a_kind_has_the_dual_that_it_states():
    assert p.P(p.ReductionKind("summed again", dual="R")).dual is p.R
    with pytest.raises(p.UndecidedReductionError, match=r"P\(extreme\).* the gradient is not defined") as caught:
        p.P(p.ReductionKind("extreme")).backward_type()
    assert caught.value.help == ("x.detach() before it",)


def test_code_derived_for_the_sum_refuses_another_kind_by_its_name():
    with pytest.raises(p.UndecidedReductionError, match=r"P\(invented\).* for which mean is not defined"):
        p.P(p.ReductionKind("invented")).is_pending_sum("mean")


@pytest.mark.parametrize("wrong", ["SUM", "maximum", None, 3, p.P])
def test_an_unknown_kind_is_refused_with_the_known_ones(wrong):
    with pytest.raises(ValueError, match=r"one of avg, max, min, norm, sum, got "):
        p.P(wrong)


@pytest.mark.parametrize("place", [p.R, p.I, p.V])
def test_only_a_partial_takes_a_kind(place):
    with pytest.raises(ValueError, match=f"{place} is no pending reduction"):
        place("sum")


@pytest.mark.parametrize("value", ["P(invented)", "P(", "Q", "", 4])
def test_no_placement_is_made_from_other_text(value):
    with pytest.raises(ValueError, match="is not a valid"):
        p.PerMeshAxisLocalSpmdType(value)
