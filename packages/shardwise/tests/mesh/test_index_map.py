"""The laws of layouts as functions, against maps that are listed index by index."""

from __future__ import annotations

import itertools
import math
import operator
from types import SimpleNamespace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from shardwise.diagnostics.errors import SpmdArgumentError, SpmdValueError
from shardwise.mesh.axis import MeshAxis
from shardwise.mesh.given import mesh_of
from shardwise.mesh.index_map import IndexMap, index_map_of


@st.composite
def numberings(draw, most=4):
    """A mesh that numbers 0 to n - 1 once each, its axes in any order."""
    sizes = draw(st.lists(st.integers(1, 4), min_size=1, max_size=most))
    order = draw(st.permutations(range(len(sizes))))
    strides, reached = [0] * len(sizes), 1
    for at in order:
        strides[at] = reached
        reached *= sizes[at]
    return IndexMap(tuple(sizes), tuple(strides))


@st.composite
def parts(draw):
    """Some axes of a numbering, and how many ranks that has."""
    whole = draw(numberings())
    taken = draw(st.lists(st.booleans(), min_size=len(whole.sizes), max_size=len(whole.sizes)))
    return IndexMap.of_modes([mode for mode, pick in zip(whole.modes, taken, strict=True) if pick]), whole.size


def listed(f):
    return [f(at) for at in range(f.size)]


@given(numberings(), st.lists(st.integers(0, 5), min_size=4, max_size=4))
def test_coalescing_keeps_the_function_and_equal_functions_become_equal(f, strides):
    g = IndexMap(f.sizes, tuple(strides[: len(f.sizes)]))
    assert listed(g.coalesce()) == listed(g)
    assert (g.coalesce() == f.coalesce()) == (listed(g) == listed(f))


@given(numberings(), numberings())
def test_composition_is_one_after_the_other(f, g):
    assume(g.reach <= f.size)
    try:
        both = f.compose(g)
    except SpmdValueError:
        assume(False)
    assert listed(both) == [f(one) for one in listed(g)]


@given(parts())
def test_a_part_and_its_complement_are_every_rank_once(part):
    f, total = part
    rest = f.complement(total)
    assert sorted(one + other for one in listed(f) for other in listed(rest)) == list(range(total))
    assert listed(rest) == sorted(listed(rest))


@given(numberings())
def test_the_inverse_leads_back(f):
    assert [f.inverse()(rank) for rank in listed(f)] == list(range(f.size))


@given(numberings(), st.lists(st.booleans(), min_size=4, max_size=4))
def test_division_covers_the_whole_tile_by_tile(f, taken):
    counted = IndexMap.compact(f.sizes)
    tile = IndexMap.of_modes([mode for mode, pick in zip(counted.modes, taken, strict=False) if pick])
    tiles, inside = f.divide(tile)
    assert listed(inside) == [f(one) for one in listed(tile)]
    assert sorted(listed(f.divided(tile))) == sorted(listed(f))
    assert listed(f.divided(tile)) == [one + other for one in listed(tiles) for other in listed(inside)]


@given(parts(), numberings(most=2))
def test_a_product_has_copies_that_do_not_meet(part, order):
    f, _ = part
    try:
        copies, inside = f.times(order)
    except SpmdValueError:  # the copies would lie unevenly between the ranks of one
        assume(False)
    assert inside == f
    ranks = listed(f.repeated(order))
    assert len(set(ranks)) == len(ranks) == f.size * order.size
    assert ranks == [one + other for one in listed(copies) for other in listed(f)]


@given(numberings(), st.integers(0, 3), st.integers(1, 4))
def test_flattening_and_unflattening_keep_the_function(f, first, count):
    assert listed(f.flatten(first, count)) == listed(f)
    for at, size in enumerate(f.sizes):
        for one in range(1, size + 1):
            if size % one == 0:
                assert listed(f.unflatten(at, (one, size // one))) == listed(f)


@given(st.lists(st.tuples(st.integers(1, 3), st.integers(0, 5)), min_size=1, max_size=4))
def test_an_index_has_the_digits_that_a_product_counts(modes):
    f = IndexMap.of_modes(modes)
    counted = list(itertools.product(*map(range, f.sizes)))
    assert [f.digits(at) for at in range(f.size)] == counted
    assert listed(f) == [sum(map(operator.mul, digits, f.strides)) for digits in counted] == list(map(f.at, counted))
    assert f.reach == max(listed(f)) + 1
    assert listed(IndexMap.compact(f.sizes)) == list(range(f.size))


NESTED = st.recursive(
    st.tuples(st.integers(1, 3), st.integers(0, 5)), lambda inner: st.lists(inner, min_size=1, max_size=3), max_leaves=5
)


@given(NESTED)
def test_nested_sizes_and_strides_are_those_without_brackets(tree):
    def side(node, which):
        return node[which] if isinstance(node, tuple) else tuple(side(one, which) for one in node)

    def leaves(node):
        return [node] if isinstance(node, tuple) else [leaf for one in node for leaf in leaves(one)]

    assert list(IndexMap.of_nested(side(tree, 0), side(tree, 1)).modes) == leaves(tree)


@pytest.mark.parametrize(("sizes", "strides"), [((2, 3), (1,)), ((2, (2, 2)), (1, 4)), (2.0, 1), ((0,), (1,))], ids=str)
def test_what_is_not_nested_alike_or_no_number_is_refused(sizes, strides):
    with pytest.raises((SpmdValueError, SpmdArgumentError)) as refused:
        IndexMap.of_nested(sizes, strides)
    assert refused.value.code == "SW903"


@given(numberings(), st.integers(0, 9))
def test_a_map_is_read_from_the_ranks_of_a_mesh(f, start):
    assert listed(index_map_of([start + rank for rank in listed(f)], f.sizes)) == listed(f)


def test_ranks_without_strides_have_no_map():
    assert index_map_of([0, 2, 1, 3, 5, 4], (2, 3)) is None


def test_nothing_is_listed_where_there_are_many_ranks():
    mesh = IndexMap.compact((2**4,) * 10)
    assert mesh.complement(2**44).size == 2**4
    assert mesh.inverse()(mesh(2**39 + 5)) == 2**39 + 5
    assert mesh.divide(IndexMap((8,), (1,)))[0].size == 2**37


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (lambda: IndexMap((0,), (1,)), "one stride"),
        (lambda: IndexMap((2,), (1,)).complement(3), "no multiple"),
        (lambda: IndexMap((2, 2), (1, 1)).complement(4), "overlap"),
        (lambda: IndexMap((2,), (2,)).inverse(), "no inverse"),
        (lambda: IndexMap((2,), (1,)).compose(IndexMap((3,), (1,))), "reaches"),
        (lambda: IndexMap((6,), (1,)).unflatten(0, (4,)), "multiply to 4"),
    ],
)
def test_what_has_no_answer_is_refused(wrong, said):
    with pytest.raises(SpmdValueError, match=said):
        wrong()


def test_the_inverse_of_column_major_is_a_column_major_count():
    megatron = IndexMap((4, 2), (1, 4))  # tp=4 fastest, then dp=2, written tp first
    assert math.prod(megatron.sizes) == 8
    assert megatron.inverse().compose(megatron).coalesce() == IndexMap((8,), (1,))


def devices(ranks, shape):
    """What JAX's Mesh has of its devices, without JAX."""
    numbered = [SimpleNamespace(id=rank) for rank in ranks]
    return SimpleNamespace(shape=shape, flat=numbered)


def test_a_mesh_of_jax_is_read_with_its_names():
    made = SimpleNamespace(axis_names=("data", "model"), devices=devices([0, 2, 4, 6, 1, 3, 5, 7], (2, 4)))
    assert dict(mesh_of(made).names) == {"data": MeshAxis.of(2, 1), "model": MeshAxis.of(4, 2)}
    crossed = SimpleNamespace(axis_names=("a", "b"), devices=devices([0, 2, 1, 3, 5, 4], (2, 3)))
    with pytest.raises(SpmdValueError, match="follow no strides"):
        mesh_of(crossed)
