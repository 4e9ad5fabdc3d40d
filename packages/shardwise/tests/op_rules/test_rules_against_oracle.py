"""Every claim the registry makes about a case is true, and every true one it refuses has its reason listed."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from shardwise.op_rules.propagation.local import Refusal, Weak, local_rules
from shardwise.op_rules.registry import all_rules
from shardwise.op_rules.schema import Kind, OpRule
from shardwise.oracle.local_types import check_claim
from shardwise.types.placement import P, R
from shardwise.types.placement import PerMeshAxisLocalSpmdType as Place

from .agreement import assert_agreement
from .all_cases import CASES, Placements, combinations
from .cases import Case
from .exceptions import TRUE_BUT_REFUSED, WITHOUT_CASE

torch.set_num_threads(1)

TRIALS = ((1, 2), (2, 3))
"""Two sets of values, each with its axis size."""


def false_claims(case: Case) -> list[str]:
    """What the rule claims of this call and the numbers refute."""
    found = []
    for seed, size in TRIALS:
        values = case.values(seed)
        for placements in combinations(values):
            if seed != TRIALS[0][0] and P not in placements:
                continue
            claims = said(case, values, placements)
            if isinstance(claims, Refusal):
                continue
            # What is made from constants alone is equal on every rank.
            own = [place for claim in claims if isinstance(place := R if isinstance(claim, Weak) else claim, Place)]
            assert len(own) == len(claims)
            claim = own[0] if len(own) == 1 else own
            disagreement = check_claim(case.call, values, placements, claim, size=size, seed=seed)
            if disagreement is not None:
                found.append(f"{case.op}{placements} is not {claim}: {disagreement}")
    return found


def said(case: Case, values: tuple[torch.Tensor, ...], placements: Placements) -> tuple[object, ...] | Refusal:
    """The placements of the results, a single one for all, as far as the case gives them."""
    operands, blocked = case.operands(values, placements), case.blocked(placements)
    claims = local_rules(case.rule, operands, blocked=blocked)
    return claims if isinstance(claims, Refusal) or case.note != "solution" else claims[:1]


def unclaimed_truths(case: Case) -> list[Placements]:
    """Which combinations of R and P the numbers find to be P, and the rule refuses."""
    values = case.values(TRIALS[0][0])
    return [
        placements
        for placements in combinations(values)
        if P in placements
        and set(placements) <= {R, P}
        and isinstance(said(case, values, placements), Refusal)
        and all(
            check_claim(case.call, case.values(seed), placements, P, size=size, seed=seed) is None
            for seed, size in TRIALS
        )
    ]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_what_a_rule_claims_is_true(case: Case):
    assert not false_claims(case)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_what_a_rule_refuses_is_not_always_true(case: Case):
    missing = unclaimed_truths(case)
    if str(case) in TRUE_BUT_REFUSED:
        assert missing, "the exception is out of date"
    else:
        assert not missing, "true, and refused without a reason"


@pytest.mark.parametrize("case", [case for case in CASES if case.sharded], ids=str)
def test_sharded_operands_give_what_a_rule_says(case: Case):
    assert_agreement(case.call, case.values(TRIALS[0][0]))


PLANTED = [
    ("relu", "input other", "input"),
    ("mul", "input other", "input + other"),
    ("add", "input other alpha", "input other"),
    ("div", "input other rounding_mode", "input other"),
    ("linear", "input weight bias", "input weight"),
    ("addmm", "input mat1 mat2 beta alpha", "input + mat1 + mat2"),
    ("scaled_dot_product_attention", "query key value attn_mask dropout_p is_causal", "query key value"),
    ("layer_norm", "input normalized_shape weight bias eps", "weight + bias"),
    ("sum", "input dim keepdim dtype", "input"),
    ("torch.where", "condition input other", "input"),
    ("embedding", "input weight", "input"),
]


@pytest.mark.parametrize(("op", "params", "linear"), PLANTED)
def test_a_wrong_rule_is_found_out(op: str, params: str, linear: str):
    wrong = OpRule(op, params, linear, law="planted")
    assert any(false_claims(replace(case, planted=wrong)) for case in CASES if case.op == op)


@pytest.mark.parametrize("op", ["mul", "add", "linear", "getitem", "cat", "einsum", "conv2d", "embedding", "to", "sum"])
def test_a_missing_law_is_found_out(op: str):
    silent = OpRule(op, "input", law="planted")
    assert any(unclaimed_truths(replace(case, planted=silent)) for case in CASES if case.op == op)


def test_every_linear_rule_has_a_case():
    tried = {case.rule.op for case in CASES}
    linear = {rule.op for rule in all_rules() if rule.linear and rule.kind in (Kind.PURE, Kind.RANDOM, Kind.CONSTANT)}
    untried = linear - tried
    assert untried == set(WITHOUT_CASE), "a linear rule has neither a case nor a reason, or a reason is out of date"


def test_every_exception_belongs_to_a_case():
    assert set(TRUE_BUT_REFUSED) <= {str(case) for case in CASES}


def test_case_names_are_unique_enough_to_except():
    names = [str(case) for case in CASES]
    for name in TRUE_BUT_REFUSED:
        assert names.count(name) == 1, f"{name!r} names several cases"
