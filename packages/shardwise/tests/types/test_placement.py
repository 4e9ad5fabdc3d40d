"""The per-axis types, their duals, and S(i)."""

import copy
import dataclasses
import pickle

import pytest

from shardwise.types import placement as p
from shardwise.types.errors import SpmdTypeError


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
