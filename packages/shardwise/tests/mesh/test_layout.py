"""The algebra of layouts agrees with sets of ranks, listed one by one."""

from itertools import pairwise

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from shardwise.diagnostics.errors import SpmdArgumentError, SpmdValueError
from shardwise.mesh.layout import Layout, layout_of_ranks


@st.composite
def layouts(draw, max_atoms=3):
    """Any layout: strides need not divide each other."""
    sizes, strides, reached = [], [], 0
    for _ in range(draw(st.integers(0, max_atoms))):
        size, stride = draw(st.integers(2, 4)), reached + draw(st.integers(1, 4))
        sizes.append(size)
        strides.append(stride)
        reached += (size - 1) * stride
    return Layout(tuple(sizes), tuple(strides))


@st.composite
def digits_of_a_grid(draw):
    """Two layouts that are digits of one grid, as the axes of real meshes are."""
    shape = draw(st.lists(st.integers(2, 3), min_size=1, max_size=4))
    strides = [1]
    for size in shape:
        strides.append(strides[-1] * size)
    picks = [draw(st.lists(st.booleans(), min_size=len(shape), max_size=len(shape))) for _ in range(2)]
    atoms = list(zip(shape, strides, strict=False))
    chosen = [[atom for atom, taken in zip(atoms, pick, strict=True) if taken] for pick in picks]
    return tuple(Layout(tuple(size for size, _ in part), tuple(stride for _, stride in part)) for part in chosen)


def ranks(layout):
    return set(layout.ranks())


def sums(*parts):
    total = [0]
    for part in parts:
        total = [one + other for one in total for other in part.ranks()]
    return total


@given(layouts())
def test_ranks_ascend_from_zero_without_repetition(layout):
    listed = list(layout.ranks())
    assert listed == sorted(set(listed))
    assert listed[0] == 0
    assert listed[-1] == layout.span()
    assert len(listed) == layout.numel()


@given(layouts(), st.integers(0, 100))
def test_a_layout_is_recovered_from_its_ranks_wherever_they_begin(layout, start):
    assert layout_of_ranks([start + rank for rank in layout.ranks()]) == layout


@given(st.sets(st.integers(0, 12), min_size=1, max_size=8))
def test_ranks_that_have_a_layout_are_exactly_its_ranks(chosen):
    layout = layout_of_ranks(sorted(chosen))
    if layout is not None:
        assert ranks(layout) == {rank - min(chosen) for rank in chosen}


@given(layouts(), layouts())
def test_two_layouts_are_equal_if_and_only_if_their_ranks_are(one, other):
    assert (one == other) == (ranks(one) == ranks(other))


@given(st.one_of(st.tuples(layouts(), layouts()), digits_of_a_grid()))
def test_issubset_is_inclusion_of_rank_sets(pair):
    one, other = pair
    assert one.issubset(other) == (ranks(one) <= ranks(other))


@pytest.mark.parametrize(
    ("inner", "outer", "expected"),
    [
        ((4, 2), ((2, 3), (4, 1)), True),  # the step 2 carries from 0..2 to 4..6
        ((3, 6), ((3, 3), (5, 1)), True),  # a diagonal
        ((3, 2), ((2, 3), (4, 1)), True),
        ((4, 1), ((2, 3), (4, 1)), False),
        ((1, 1), ((), ()), True),
        (((), ()), (8, 1), True),
    ],
)
def test_inclusion_holds_also_where_a_step_crosses_atoms(inner, outer, expected):
    assert Layout(*inner).issubset(Layout(*outer)) is expected


@given(layouts(), layouts(), layouts())
def test_parts_of_a_merge_and_parts_of_parts_are_inside(one, other, third):
    """Inclusion is an order, and what is merged is inside, whichever numbering it was written in."""
    if one.issubset(other) and other.issubset(one):
        assert one == other
    if one.issubset(other) and other.issubset(third):
        assert one.issubset(third)
    if one.isorthogonal(other):
        assert one.issubset(one.merge(other))


@pytest.mark.parametrize(
    ("inner", "outer", "expected"),
    [
        ((2**40, 2), ((2**39, 3), (4, 1)), True),  # every second step carries
        ((2**40, 2), ((2**39, 2), (4, 1)), False),
        ((2**40, 3), ((2**39, 4), (6, 1)), True),
        (((2**30, 2**8), (2**12, 6)), ((2**30, 2**9, 2), (2**12, 6, 1)), True),
        (((2**30, 2**8), (2**12, 6)), ((2**30, 2**7, 3), (2**12, 12, 2)), False),
        (((2**30, 2**8), (2**12, 6)), ((2**30, 2**7, 4), (2**12, 12, 2)), True),
    ],
)
def test_inclusion_is_decided_on_layouts_however_many_ranks_they_have(inner, outer, expected):
    assert Layout(*inner).issubset(Layout(*outer)) is expected


@given(st.one_of(st.tuples(layouts(), layouts()), digits_of_a_grid()))
def test_orthogonal_layouts_count_in_mixed_radix(pair):
    """Digits in order of stride reach every sum once, ascending; that is what orthogonal means."""
    atoms = sorted((atom for layout in pair for atom in layout.atoms), key=lambda atom: -atom[1])
    counted = [0]
    for size, stride in atoms:
        counted = [base + digit * stride for base in counted for digit in range(size)]
    ascending = all(a < b for a, b in pairwise(counted))
    assert pair[0].isorthogonal(pair[1]) == ascending


@given(digits_of_a_grid())
def test_a_rank_is_the_first_of_its_fiber_and_what_it_is_off(pair):
    axis, other = pair
    assume(axis.isorthogonal(other))
    for first in other.ranks():
        fiber = [first + offset for offset in axis.ranks()]
        assert [(axis.offset(rank), axis.place(rank)) for rank in fiber] == [
            (rank - first, place) for place, rank in enumerate(fiber)
        ]
        assert {axis.fiber(rank) for rank in fiber} == {tuple(fiber)}


@given(st.one_of(st.tuples(layouts(2), layouts(2)), digits_of_a_grid()))
def test_merging_gives_all_sums(pair):
    one, other = pair
    if not one.isorthogonal(other):
        with pytest.raises(SpmdValueError, match="counts some ranks twice") as caught:
            one.merge(other)
        assert caught.value.code == "SW903"
        return
    assert ranks(one.merge(other)) == set(sums(one, other))


@given(st.one_of(st.tuples(layouts(), layouts(2)), digits_of_a_grid()))
def test_dividing_undoes_merging(pair):
    whole, part = pair
    rest = whole.divide(part)
    if rest is not None:
        assert part.merge(rest) == whole
    if whole.isorthogonal(part):
        merged = whole.merge(part)
        assert ranks(merged.divide(part)) == ranks(whole)


@given(digits_of_a_grid())
def test_division_finds_the_rest_whenever_there_is_one(pair):
    whole, part = pair
    fits = set(part.atoms) <= set(whole.atoms)
    assert not fits or whole.divide(part) is not None


@pytest.mark.parametrize(
    ("sizes", "strides", "normal"),
    [
        ((2, 2), (2, 1), "4:1"),
        ((2, 2), (1, 2), "4:1"),
        (((2, 3), 1), ((12, 4), 7), "6:4"),
        ((3, 2), (4, 1), "(3, 2):(4, 1)"),
        (1, 0, "1:1"),
        ((), (), "1:1"),
    ],
)
def test_a_layout_is_kept_in_normal_form(sizes, strides, normal):
    assert str(Layout(sizes, strides)) == normal


@pytest.mark.parametrize(
    ("sizes", "strides", "error", "words"),
    [
        ((2, 2), (1, 1), SpmdValueError, "counts some ranks twice"),
        ((2, 2, 2), (7, 6, 5), SpmdValueError, "counts some ranks twice"),
        (0, 1, SpmdValueError, "must be positive, got size 0 with stride 1"),
        (2, 0, SpmdValueError, "must be positive, got size 2 with stride 0"),
        ((2, 2), (1,), SpmdValueError, "one stride per size"),
        ("ab", 1, SpmdArgumentError, "are ints, got 'ab' of type str"),
        (True, 1, SpmdArgumentError, "are ints, got True of type bool"),
    ],
)
def test_what_is_no_layout_is_refused(sizes, strides, error, words):
    with pytest.raises(error, match=words) as caught:
        Layout(sizes, strides)
    assert caught.value.code == "SW903"


@pytest.mark.parametrize("ranks", [[0, 1, 3], [0, 0], [0, 1, 2, 4], [0, 1, 5, 7]])
def test_unevenly_spaced_ranks_have_no_layout(ranks):
    assert layout_of_ranks(ranks) is None


def test_questions_about_huge_layouts_are_answered_without_counting():
    million = 1_000_000
    axis, other = Layout((million, million), (million**3, 1)), Layout(million, million)
    assert axis.isorthogonal(other)
    assert axis.issubset(axis.merge(other))
    assert not axis.merge(other).issubset(axis)
    assert axis.merge(other).divide(other) == axis
