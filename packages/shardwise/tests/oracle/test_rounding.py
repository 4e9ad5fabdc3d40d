"""Is rounding told from lies? Each dtype by its own precision, the coarsest of a call for all of it."""

from __future__ import annotations

import pytest
import torch

from shardwise.oracle.global_types import check_claims
from shardwise.oracle.local_types import check_claim
from shardwise.oracle.rounding import close, coarsest, same, total
from shardwise.types.placement import P, R, S, Shard

torch.set_num_threads(1)
SINGLE, DOUBLE = torch.float32, torch.float64


def near_linear(error: float):
    """Linear but for a term of relative size ``error``."""
    return lambda x: x + error * x * x


def drawn(dtype: torch.dtype, *shape: int) -> torch.Tensor:
    return torch.randn(shape, dtype=dtype, generator=torch.Generator().manual_seed(3))


@pytest.mark.parametrize(
    ("dtype", "error", "refuted"),
    [(DOUBLE, 1e-3, True), (DOUBLE, 1e-6, True), (SINGLE, 1e-3, True), (SINGLE, 1e-6, False)],
)
def test_single_precision_is_blind_to_lies_below_its_rounding_and_double_is_not(dtype, error, refuted):
    found = check_claim(near_linear(error), [drawn(dtype, 4, 5)], [P], P)
    assert (found is not None) is refuted


def test_a_planted_global_lie_is_refuted_in_single_precision():
    def says_whole(fn, tensors, placements):
        return (R,)

    report = check_claims(torch.nn.functional.gelu, [drawn(SINGLE, 4, 5)], says_whole)
    assert {str(lie.fact) for lie in report.wrong} == {"S(0) -> R", "S(1) -> R", "P -> R", "R -> R"} - {"R -> R"}


def test_a_long_sum_in_single_precision_is_no_lie():
    def contracted(fn, tensors, placements):
        whole = set(placements) == {R}
        return (R,) if whole else (P,) if placements in ((S(1), S(0)), (P, R), (R, P)) else "refused"

    report = check_claims(torch.matmul, [100 * drawn(SINGLE, 4, 700), drawn(SINGLE, 700, 5)], contracted)
    assert report.wrong == ()
    assert report.covered == 4


def test_a_cast_to_double_is_as_coarse_as_what_it_casts():
    assert check_claim(torch.Tensor.double, [drawn(SINGLE, 4, 5)], [P], P) is None
    assert coarsest([drawn(SINGLE, 1), drawn(DOUBLE, 1)]) is SINGLE
    assert coarsest([drawn(SINGLE, 1), drawn(SINGLE, 1).bfloat16()]) is torch.bfloat16
    assert coarsest([drawn(DOUBLE, 1), torch.ones(1, dtype=torch.int64)]) is None


def test_tolerance_is_in_proportion_to_the_largest_element():
    wanted = torch.tensor([1e-3, 1e4])
    assert close(wanted + torch.tensor([5e-2, 0.0]), wanted)
    assert not close(wanted + torch.tensor([5e-2, 0.0]), torch.tensor([1e-3, 1.0]))
    assert not close(torch.tensor([1.0, torch.nan]), torch.tensor([1.1, torch.nan]))
    assert close(torch.tensor([1.0, torch.nan, torch.inf]), torch.tensor([1.0, torch.nan, torch.inf]))
    assert not close(torch.ones(2), torch.ones(1, 2))


def test_an_equal_result_has_the_same_bits_up_to_the_last_ones():
    x = drawn(SINGLE, 50)
    assert same(x, x.clone())
    assert same(x, x * (1 + 1e-7))
    assert not same(x, x * (1 + 1e-5))
    assert not same(torch.arange(3), torch.arange(3) + 1)


@pytest.mark.parametrize("dtype", [torch.complex32, torch.uint64, torch.uint32, torch.float16])
def test_sums_of_dtypes_that_do_not_add(dtype):
    pieces = [torch.ones(3).to(dtype), (2 * torch.ones(3)).to(dtype)]
    assert close(total(pieces), (3 * torch.ones(3)).to(dtype))
    assert not close(total(pieces), (4 * torch.ones(3)).to(dtype))


def test_what_the_lie_is_about_is_found_in_both_precisions():
    def mean_of_uneven_shards(fn, tensors, placements):
        return (
            (R,) if set(placements) == {R} else (P,) if placements == (P,) or isinstance(placements[0], Shard) else "no"
        )

    for dtype in (SINGLE, DOUBLE):
        report = check_claims(torch.mean, [drawn(dtype, 5)], mean_of_uneven_shards)
        assert {str(lie.fact) for lie in report.wrong} == {"S(0) -> P"}


def test_truth_values_made_from_single_precision_are_compared_as_they_are():
    yes, no = torch.tensor([True, False]), torch.tensor([True, True])
    assert close(yes, yes.clone(), rough=torch.float32)
    assert not close(yes, no, rough=torch.float32)
