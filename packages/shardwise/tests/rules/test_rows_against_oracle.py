"""Every claim the rule book makes about a case is true, and every true one it refuses has its reason listed."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest
import torch

from shardwise.rules.algebra import Refusal, Weak, local_rule
from shardwise.rules.row import Kind
from shardwise.rules.table import rows
from shardwise.simulator.oracle import check_claim
from shardwise.types.placement import I, P, PerMeshAxisLocalSpmdType, R, V

from . import linear_cases, module_cases, pure_cases, shaping_cases
from .cases import Case
from .exceptions import TRUE_BUT_REFUSED, WITHOUT_CASE

torch.set_num_threads(1)

CASES: list[Case] = [
    *linear_cases.ELEMENTWISE,
    *linear_cases.CASTING,
    *linear_cases.CONTRACTION,
    *linear_cases.REDUCTION,
    *shaping_cases.VIEWS,
    *shaping_cases.REARRANGED,
    *shaping_cases.JOINED,
    *shaping_cases.INDEXED,
    *module_cases.CONVOLUTION,
    *module_cases.NORMALISATION,
    *module_cases.FOURIER,
    *module_cases.SOLVERS,
    *module_cases.RANDOM_AT_REST,
    *module_cases.FACTORIES,
    *pure_cases.PURE,
]
SEEDS = (1, 2)
Placements = tuple[PerMeshAxisLocalSpmdType, ...]


def combinations(values: tuple[torch.Tensor, ...]) -> Iterator[Placements]:
    """Every combination of placements for up to three operands, and a cross-section for more. A mask is never P."""
    choices = [(R, I, V, P) if value.dtype is not torch.bool else (R, I, V) for value in values]
    if len(values) <= 3:
        yield from itertools.product(*choices)
        return
    yield from itertools.product(*([place for place in choice if place in (R, P)] for choice in choices))
    yield (I,) * len(values)
    yield (V,) * len(values)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_what_the_book_claims_is_true(case: Case):
    for seed in SEEDS:
        values = case.values(seed)
        blocked = case.blocked()
        for placements in combinations(values):
            if seed != SEEDS[0] and P not in placements:
                continue
            claim = local_rule(case.row, case.operands(values, placements), blocked=blocked)
            if isinstance(claim, Refusal):
                continue
            if isinstance(claim, Weak):  # made from constants alone: equal on every rank
                claim = R
            assert isinstance(claim, PerMeshAxisLocalSpmdType)
            found = check_claim(case.call, values, placements, claim, seed=seed)
            assert found is None, f"{case.op}{placements} is not {claim}: {found}"


@pytest.mark.parametrize("case", CASES, ids=str)
def test_what_the_book_refuses_is_not_always_true(case: Case):
    values = case.values(SEEDS[0])
    blocked = case.blocked()
    reason = TRUE_BUT_REFUSED.get(str(case))
    missing = []
    for placements in combinations(values):
        if P not in placements or not set(placements) <= {R, P}:
            continue
        if not isinstance(local_rule(case.row, case.operands(values, placements), blocked=blocked), Refusal):
            continue
        if all(check_claim(case.call, case.values(seed), placements, P, seed=seed) is None for seed in SEEDS):
            missing.append(placements)
    if reason is None:
        assert not missing, f"{case}: {missing} are P, and the book refuses them without a reason"
    else:
        assert missing, f"{case} needs no exception any more"


def test_every_linear_row_has_a_case():
    tried = {case.row.op for case in CASES}
    linear = {row.op for row in rows() if row.linear and row.kind in (Kind.PURE, Kind.RANDOM, Kind.CONSTANT)}
    untried = linear - tried
    assert untried == set(WITHOUT_CASE), "a linear row has neither a case nor a reason, or a reason is out of date"


def test_every_exception_belongs_to_a_case():
    assert set(TRUE_BUT_REFUSED) <= {str(case) for case in CASES}


def test_case_names_are_unique_enough_to_except():
    names = [str(case) for case in CASES]
    for name in TRUE_BUT_REFUSED:
        assert names.count(name) == 1, f"{name!r} names several cases"
