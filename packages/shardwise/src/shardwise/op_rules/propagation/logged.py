"""Numbers that are logged are sent as one message: a mean loss, hits and a count are joined, and summed over the ranks.

Nothing is added up where they are joined, so each has a scale of its own, and the message has none that anyone knows.
Where a program writes no types, that is no mistake of its own:

    torch.stack([loss, hits, rows])    P(avg), P, and R/n of a rank's rows: summed, n times the loss, all hits, all rows
Source: docs/semantics.md section 11.
"""

from __future__ import annotations

from collections.abc import Sequence

from shardwise.types.placement import P

from ..schema import OpRule
from ..vocabulary.degrees import JOINED
from .local import ANY, Given, Weak


def is_message(rule: OpRule, givens: Sequence[Given]) -> bool:
    """Does the call join pending sums with each other, or with what all ranks have, of which nothing is trained?"""
    pending = any(given.placement is P for given in givens)
    return rule.op in JOINED and pending and not any(given.grad for given in givens)


def may_be_summed(givens: Sequence[Given]) -> bool:
    """Is what a message has beside pending sums a count of each rank, or an equal value that is averaged with them?

    A count has been divided by the ranks, or is a constant that may be one. A pending average is divided when it has
    been summed, and so is all beside it.
    """
    averaged = any(given.placement is P and given.exponent == 1 for given in givens)
    return all(
        given.exponent is ANY
        or (given.exponent is None and isinstance(given.placement, Weak))
        or (given.exponent is not None and (given.exponent < 0 or (given.exponent == 0 and averaged)))
        for given in givens
        if given.placement is not P
    )
