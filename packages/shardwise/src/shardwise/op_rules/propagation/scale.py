"""The scale of a call's result along one mesh axis: which power of the axis's size it is too large by; pure.

Products add exponents, quotients subtract them, sums need equal ones. A term that every rank adds to a pending sum
counts once per rank, so its exponent is one more there: x/n is a term of a sum. What is not known is compatible with
anything, and zero has every exponent.
Source: docs/semantics.md section 9, Law 9.2.
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Sequence
from fractions import Fraction
from typing import Any

from shardwise.types.placement import Placement, V
from shardwise.types.tensor_type import Exponent, Power, as_power

from ..schema import OpRule, Term
from ..vocabulary.degrees import AVERAGING, COMPARED, FLOORED, HELD, JOINED, LAWS, NOT_HOMOGENEOUS, POSITIONED
from .local import ANY, Given, Refusal, Weak, expand

LARGEST_ROOT = 12
"""The largest denominator of an exponent: a root of a root of a third root of what is n times too large."""
Powers = dict[str, Any]
Scaled = tuple[tuple[int, ...], Any]
"""A product, as positions of operands, and its exponent; ``ANY`` for zero."""


def scale_rule(
    rule: OpRule, givens: Sequence[Given], result: Placement | Weak, *, untold: bool = False
) -> Exponent | Refusal:
    """The result's exponent along the axis; ``result`` is its placement there, ``untold`` as ``scales_of_results``."""
    if all(given.exponent == 0 or given.exponent is ANY for given in givens):
        return _least(rule, givens)
    if rule.op in COMPARED:
        found = _joined([((at,), given.exponent) for at, given in enumerate(givens) if _is_tensor(given)])
        return found if isinstance(found, Refusal) else 0
    # Gradients have whole powers, and so have their norms: behind a root is a norm of something else.
    rooted = tuple(at for at, given in enumerate(givens) if isinstance(given.exponent, Fraction))
    if rooted and any(given.number == 1 and given.param == FLOORED.get(rule.op) for given in givens):
        return Refusal("SW151", "not homogeneous", rooted[:1])
    if _is_held_at_one(rule, givens):
        return Refusal("SW151", "not homogeneous", rooted[:1]) if rooted else 0
    terms, powers = law_of(rule)
    named = {factor.lstrip("*^") for term in terms for factor in term.factors}
    choosing = _choosing(rule, givens, named)
    if all(at in choosing or given.exponent in (0, ANY) for at, given in enumerate(givens)):
        return _least(rule, givens)
    if rule.view:  # bounds by a rank's number say which part is its own; a size of any other may be a number of ranks
        choosing |= {at for at, given in enumerate(givens) if given.placement is V and given.param not in named}
    outside = [at for at, given in enumerate(givens) if given.param not in named and at not in choosing]
    scaled = tuple(at for at in outside if givens[at].exponent and givens[at].exponent is not ANY)
    if rule.op in NOT_HOMOGENEOUS:  # Law 9.2: what stands inside has 0, also where nobody knows it
        if scaled:
            return Refusal("SW151", "not homogeneous", scaled)
        if not terms:
            return 0
    elif scaled or not terms or any(givens[at].exponent is None for at in outside):
        return None
    sums = _products(terms, powers, givens, result, untold=untold)
    found = 0 if rule.op in NOT_HOMOGENEOUS and _are_zeros(sums) else _joined(sums)
    beside = rule.op in JOINED and any(exponent is None for _, exponent in sums)
    return None if beside and not isinstance(found, Refusal) else found


def _least(rule: OpRule, givens: Sequence[Given]) -> Exponent:
    """The exponent of what is made of operands on the scale of one device, and of zeros: zero, as ``0 * x``, has every
    one.
    """
    if rule.op in NOT_HOMOGENEOUS or not any(given.exponent is ANY and not given.is_whole for given in givens):
        return 0
    terms, powers = law_of(rule)
    sums = [(product, _of_product([givens[at] for at in product], powers)) for product in _expanded(terms, givens)]
    return None if sums and _are_zeros(sums) else 0


def _are_zeros(terms: Sequence[Scaled]) -> bool:
    return all(exponent is ANY for _, exponent in terms)


def _choosing(rule: OpRule, givens: Sequence[Given], named: Collection[str]) -> set[int]:
    """Indices, targets and masks choose, whatever their scale, beside numbers that are computed with."""
    if all(given.is_whole for given in givens if _is_tensor(given)):
        return set()
    factors = named if rule.op not in NOT_HOMOGENEOUS else ()
    return {at for at, given in enumerate(givens) if given.is_whole and given.param not in factors}


def _products(
    terms: Sequence[Term], powers: Powers, givens: Sequence[Given], result: Placement | Weak, *, untold: bool
) -> list[Scaled]:
    """The products that the law adds up, each with its exponent in the sum."""
    pending = not isinstance(result, Weak) and result.is_partial
    may_pend = untold and result is V
    # What counts positions, or is of each rank, may be moved by any number of ranks.
    moved = may_pend or all(given.is_whole for given in givens if _is_tensor(given))
    shares: set[int] = set()
    sums: list[Scaled] = []
    for product in _expanded(terms, givens):
        factors = [givens[at] for at in product]
        exponent = _of_product(factors, powers)
        is_copied = not any(map(_is_split, factors))
        if is_copied and may_pend:
            shares.add(len(sums))
        if exponent is not ANY:
            if is_copied and pending and exponent is not None:
                exponent += 1
            if len(terms) > 1 and not any(map(_is_tensor, factors)) and (moved or not exponent):
                exponent = None  # an offset, a bound, a small constant, unless it is known to grow with the ranks
        sums.append((product, exponent))
    return _with_shares(sums, shares) if shares else sums


def _expanded(terms: Sequence[Term], givens: Sequence[Given]) -> list[tuple[int, ...]]:
    """The products of the operands, as positions."""
    by_param: dict[str, list[int]] = {}
    for at, given in enumerate(givens):
        by_param.setdefault(given.param, []).append(at)
    return [product for term in terms for product in expand(term, by_param)]


def _with_shares(sums: Sequence[Scaled], shares: Collection[int]) -> list[Scaled]:
    """The terms, where those at ``shares`` are the same on every rank: beside what varies, which may be what a rank
    adds to a sum, x/n is a share of x.
    """
    others = {exponent for at, (_, exponent) in enumerate(sums) if at not in shares}
    return [
        (product, exponent + 1) if at in shares and isinstance(exponent, Power) and exponent + 1 in others else term
        for at, term in enumerate(sums)
        for product, exponent in [term]
    ]


def scales_of_results(
    rule: OpRule, givens: Sequence[Given], places: Sequence[Placement | Weak], averaged: bool, *, untold: bool
) -> tuple[Exponent, ...] | Refusal:
    """The exponent of every result along the axis, or one for all; ``places``: the results' placements there.

    ``averaged``  the mean was taken over a dim that the axis shards.
    ``untold``    nobody says which dims are sharded, so nobody knows that of a varying operand.
    """
    if all(given.exponent == 0 or given.exponent is ANY for given in givens):
        first: Exponent | Refusal = _least(rule, givens)
    elif rule.each is not None:
        return tuple(0 if given.exponent is ANY else given.exponent for given in givens)
    else:
        first = power_rule(givens) if rule.op == "pow" else scale_rule(rule, givens, places[0], untold=untold)
    if isinstance(first, Refusal):
        return first
    if untold and rule.op in AVERAGING and any(given.placement is V for given in givens):
        return (None,)
    if averaged and first is not None:
        first += 1
    return (first, 0) if rule.op in POSITIONED and first != 0 else (first,)


@functools.cache
def _parsed(law: str) -> tuple[tuple[Term, ...], Powers]:
    terms, powers = [], {}
    for term in filter(str.strip, law.split("+")):
        names = []
        for factor in term.split():
            name, _, power = factor.partition("^")
            names.append(name)
            if power:
                powers[name] = power if power.isidentifier() else Fraction(power)
        terms.append(Term(tuple(names)))
    return tuple(terms), powers


def law_of(rule: OpRule) -> tuple[tuple[Term, ...], Powers]:
    """The rule's polynomial, and the powers of its factors that are not one."""
    law = LAWS.get(rule.op)
    return (rule.terms, {}) if law is None else _parsed(law)


def _is_held_at_one(rule: OpRule, givens: Sequence[Given]) -> bool:
    """True of a coefficient that is at most 1, where it leaves what it multiplies as it is (Law 9.6)."""
    numbers = {given.param: given.number for given in givens if isinstance(given.number, (int, float))}
    return any(numbers.get(param) == 1 for param in HELD.get(rule.op, ())) and min(numbers.values()) >= 0


def _of_product(factors: Sequence[Given], powers: Powers) -> Any:
    """The sum of the factors' exponents, times their powers."""
    total = Fraction(0)
    for factor in factors:
        power = powers.get(factor.param, 1)
        if isinstance(power, str):  # pow: another operand, a plain number, says it
            return None
        if factor.exponent is ANY:
            return ANY if power > 0 else None
        if power == 0:
            continue
        if factor.exponent is None:
            return None
        total += power * factor.exponent
    return known_power(total)


def power_rule(givens: Sequence[Given]) -> Exponent:
    """``input ** exponent`` for a plain number of an exponent."""
    base = next((given for given in givens if given.param == "input"), None)
    power = next((given.number for given in givens if given.param == "exponent"), None)
    if base is None or base.exponent is ANY:
        return 0
    if base.exponent is None or not isinstance(power, (int, float)) or power != power or abs(power) == float("inf"):
        return None
    return known_power(Fraction(power) * base.exponent)


def known_power(total: Fraction) -> Exponent:
    """An exponent as types have it; a power that is no ratio of small numbers has none."""
    return as_power(total) if total.denominator <= LARGEST_ROOT else None


def _joined(terms: Sequence[Scaled]) -> Exponent | Refusal:
    """The one exponent that all terms have; those that are known must agree. Zero has every one, as ``0 * x``."""
    known = [(product, exponent) for product, exponent in terms if exponent is not None and exponent is not ANY]
    if not known:
        return None
    first, exponent = known[0]
    for product, other in known[1:]:
        if other != exponent:
            return Refusal("SW150", f"{exponent} {other}", product, first)
    return known_power(Fraction(exponent))


def _is_split(given: Given) -> bool:
    """A factor of which each rank has its own: its product is a term of the sum, and no rank's copy of one."""
    return not isinstance(given.placement, Weak) and not given.placement.is_equal


def _is_tensor(given: Given) -> bool:
    return given.number is None
