"""Random reshapes: a dim is kept exactly where the numbers say that it is."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from shardwise.op_rules.propagation.reshaped_dims import INSIDE, reshape
from shardwise.oracle.sharded_types import Truth
from shardwise.types.placement import Shard


def grouped(factors: Sequence[int], cuts: Sequence[bool]) -> list[int]:
    """Products of runs of ``factors``, cut where ``cuts`` says."""
    sizes = [1]
    for factor, cut in zip(factors, cuts, strict=False):
        if cut:
            sizes.append(1)
        sizes[-1] *= factor
    return sizes


FACTORS = st.lists(st.sampled_from([1, 2, 2, 3]), min_size=1, max_size=5)
CUTS = st.lists(st.booleans(), min_size=5, max_size=5)
PLACES = st.integers(0, 4)


def holds(before: Sequence[int], dim: int, after: Sequence[int], to: int) -> bool:
    """True if shards of ``dim`` are shards of ``to`` when the program scales that size."""
    whole = [size * (1 + (at == dim)) for at, size in enumerate(before)]
    scaled = [size * (1 + (at == to)) for at, size in enumerate(after)]
    values = torch.arange(math.prod(whole), dtype=torch.float64).reshape(whole)
    truth = Truth(lambda x: x.reshape(after if list(x.shape) == list(before) else scaled), [values], value_sets=1)
    return truth.refute((Shard(dim),), (Shard(to),)) is None


@settings(max_examples=150)
@given(FACTORS, CUTS, CUTS, PLACES, st.one_of(st.none(), PLACES), st.randoms(use_true_random=False))
def test_a_dim_is_kept_exactly_where_its_shards_stay_in_one_piece(
    factors: list[int], cuts: list[bool], others: list[bool], dim: int, free: int | None, random: object
) -> None:
    before = grouped(factors, cuts)
    shuffled = list(factors)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    after = grouped(shuffled, others)
    assume(dim < len(before) and (free is None or free < len(after)))
    asked = [-1 if at == free else size for at, size in enumerate(after)]
    found = reshape(before, asked)
    assert found is not None
    assert set(found.target) | set(found.why) == set(range(len(before)))
    assert found.ndim == len(after)
    if dim in found.target:
        assert holds(before, dim, after, found.target[dim])
    elif before[dim] > 1:  # one element may be anywhere, and is refused for that
        assert not any(holds(before, dim, after, to) for to in range(len(after)))


@settings(max_examples=150)
@given(FACTORS, CUTS, CUTS, PLACES, st.sets(PLACES, max_size=3), st.randoms(use_true_random=False))
def test_a_dim_becomes_a_share_only_where_its_shards_stay_in_one_piece(
    factors: list[int], cuts: list[bool], others: list[bool], dim: int, shared: set[int], random: object
) -> None:
    before = grouped(factors, cuts)
    shuffled = list(factors)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    after = grouped(shuffled, others)
    assume(dim < len(before) and shared <= set(range(len(after))))
    found = reshape(before, after, shared)
    assert found is not None
    assert set(found.target) | set(found.why) == set(range(len(before)))
    if found.target.get(dim) in shared:
        assert holds(before, dim, after, found.target[dim])


def test_a_dim_that_would_be_split_by_two_shares_becomes_none() -> None:
    found = reshape((6,), (3, 2, 1), {1, 2})
    assert found is not None
    assert (found.target, found.why) == ({}, {0: INSIDE})


def test_sizes_that_do_not_fit_are_nobodys() -> None:
    assert reshape((4, 6), (5, 5)) is None
    assert reshape((4, 6), (-1, 5)) is None
    assert reshape((4, 6), (-1, -1)) is None


def test_an_empty_dim_is_like_any_other() -> None:
    found = reshape((0, 6), (0, 2, 3))
    assert found is not None
    assert found.target == {0: 0, 1: 1}
    merged = reshape((2, 0, 6), (-1, 6))
    assert merged is not None
    assert merged.target == {0: 0, 2: 1}


def test_a_minus_one_says_which_dim_grows() -> None:
    """One sequence per rank: 4 tokens become a batch of 1, which is what grows with the ranks."""
    batch, inserted, merged = reshape((4, 6), (-1, 4, 6)), reshape((4, 6), (1, 4, 6)), reshape((1, 4, 6), (-1, 6))
    assert batch is not None
    assert batch.target == {0: 0, 1: 2}
    assert inserted is not None
    assert inserted.target == {0: 1, 1: 2}
    assert merged is not None
    assert merged.target == {0: 0, 1: 0, 2: 1}
