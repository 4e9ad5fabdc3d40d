"""Expressions that ranks tell, compared without running anything."""

from __future__ import annotations

import pytest

from shardwise.uniformity.congruence import incongruent
from shardwise.uniformity.expressions import UNKNOWN, EqualValue, TakenTensor

GROUP = ("dp", (0, 1))


def squared(operand: str) -> EqualValue:
    """``p.square()`` of an operand with this digest."""
    return EqualValue(
        "train.py:3", None, (GROUP,), "square", operands=(TakenTensor("p", operand),), digest=f"s{operand}"
    )


@pytest.mark.parametrize(
    ("other", "code"),
    [("stepped", None), ("stepped otherwise", "SW507"), (UNKNOWN, None)],
    ids=["alike", "otherwise", "sent by another rank"],
)
def test_operands_are_compared_where_both_ranks_know_how_they_came_about(other, code):
    findings = incongruent({0: [squared("stepped")], 1: [squared(other)]})
    assert [finding.code for finding in findings] == ([code] if code else [])


def test_what_follows_from_what_one_rank_was_sent_is_not_told_either():
    def doubled(operand: str) -> EqualValue:
        return EqualValue(
            "train.py:4", None, (GROUP,), "mul", operands=(TakenTensor("y", operand),), digest=f"m{operand}"
        )

    ranks = {0: [squared("stepped"), doubled("sstepped")], 1: [squared(UNKNOWN), doubled("s")]}
    assert incongruent(ranks) == ()
