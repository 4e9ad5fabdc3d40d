"""The local rule: from an op rule and the operands' placements along one mesh axis to those of the results; pure.

Source: docs/semantics.md section 3. Operands are given as placements; the answer is a placement or a ``Refusal`` that
says which operands are at fault and why. Nothing is raised here, so a repair is tried by calling ``local_rule`` again.
"""

from __future__ import annotations

import enum
import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from shardwise.types.placement import MAX, NORM, UNKNOWN, I, P, PerMeshAxisLocalSpmdType, Placement, R, V

from ..schema import Each, Kind, OpRule, Term
from ..vocabulary.guards import ROUNDS
from ..vocabulary.monotone import ABOVE, BELOW, LARGEST, MOVES, NON_DECREASING, PICKS, SMALLEST
from ..vocabulary.norms import JOINS, NORMS, SQUARES


class Weak(enum.Enum):
    """An operand that is equal on every rank by construction and takes part in no gradient."""

    CONSTANT = "constant"
    """A Python number, or a tensor made from constants alone."""
    ZERO = "zero"
    """The number 0, or a tensor of zeros: a term with it as a factor vanishes."""

    __hash__ = object.__hash__


ANY: Final = "any"
"""The exponent of zero: whatever it is multiplied by, it stays zero."""


@dataclass(frozen=True, slots=True)
class Given:
    """One operand along one axis. ``index``: its position in a list parameter; ``grad``: it can receive a gradient.

    ``number``    its value, if it is a plain number.
    ``exponent``  of its scale: a power of the axis's size; None: unknown; ``ANY`` for zero.
    ``is_whole``  its elements are integers or truth values.
    """

    param: str
    placement: Placement | Weak
    index: int | None = None
    grad: bool = False
    number: Any = None
    exponent: Any = 0
    is_whole: bool = False


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why the operands cannot be combined. ``culprits`` and ``others`` are positions in the list of operands."""

    code: str
    reason: str
    culprits: tuple[int, ...]
    others: tuple[int, ...] = ()


def local_rule(rule: OpRule, operands: Sequence[Given], *, blocked: str | None = None) -> Placement | Weak | Refusal:
    """The result's placement along one axis.

    ``blocked`` is the reason why the rule's linear law does not hold for this call (an integer cast, a rounding mode),
    or None. A call on constants alone gives ``Weak``.
    """
    places = {operand.placement for operand in operands if not isinstance(operand.placement, Weak)}
    if UNKNOWN in places:
        return UNKNOWN
    if not places:
        return _constant(rule, operands)
    if I in places and len(places) > 1:
        operands = relax(operands)
        places = {operand.placement for operand in operands if not isinstance(operand.placement, Weak)}
    if I in places and len(places) > 1:
        return Refusal("SW101", "mixed", _having(operands, I), _having(operands, *places - {I}))
    if any(place.is_extremum for place in places):
        return _extremum(rule, operands, None if blocked == ROUNDS else blocked)
    if any(place.reduction is NORM for place in places):
        return _norm(rule, operands, blocked)
    if any(place.is_partial for place in places):
        return _partial(rule, operands, blocked)
    return V if V in places else next(iter(places))


def local_rules(
    rule: OpRule, operands: Sequence[Given], *, blocked: str | None = None, complete: bool = True
) -> tuple[Placement | Weak, ...] | Refusal:
    """The placement of every result along one axis; one entry: all results have it.

    A call is refused as a whole where one of its results is.
    ``complete``  these are all of the call's operands, so that they can be told to belong to its results.
    """
    parts: list[tuple[OpRule, Sequence[int]]]
    coupled = rule.each is Each.SHAPED and _having(operands, V)  # another rank's results may have another shape
    if rule.each is not None and complete and len(operands) > 1 and not coupled:
        parts = [(rule, (position,)) for position in range(len(operands))]
    elif rule.others:
        parts = [(one, _positions(operands, of)) for one, of in rule.single]
    else:
        verdict = local_rule(rule, operands, blocked=blocked)
        return verdict if isinstance(verdict, Refusal) else (verdict,)
    places: list[Placement | Weak] = []
    for one, positions in parts:
        verdict = local_rule(one, [operands[position] for position in positions], blocked=blocked)
        if isinstance(verdict, Refusal):
            culprits, others = ([positions[at] for at in found] for found in (verdict.culprits, verdict.others))
            return replace(verdict, culprits=tuple(culprits), others=tuple(others))
        places.append(verdict)
    return tuple(places)


def _positions(operands: Sequence[Given], of: frozenset[str] | None) -> Sequence[int]:
    return [position for position, operand in enumerate(operands) if of is None or operand.param in of]


def relax(operands: Sequence[Given]) -> list[Given]:
    """Read replicate and invariant operands that receive no gradient as whichever flavour the others need.

    R and I hold the same bits and differ only in their gradient. If the operands that can receive one agree, the
    others follow them; if none can, all read as R.
    """
    flavours = {operand.placement for operand in operands if operand.grad and operand.placement in (R, I)}
    if len(flavours) > 1:
        return list(operands)
    flavour = next(iter(flavours), R)
    return [
        replace(operand, placement=flavour) if operand.placement in (R, I) and not operand.grad else operand
        for operand in operands
    ]


def _having(operands: Sequence[Given], *places: Placement) -> tuple[int, ...]:
    return tuple(position for position, operand in enumerate(operands) if operand.placement in places)


def _pending_sums(rule: OpRule, operands: Sequence[Given]) -> tuple[int, ...]:
    decider = f"the op rule of {rule.op}"
    given = enumerate(operand.placement for operand in operands)
    return tuple(at for at, place in given if not isinstance(place, Weak) and place.is_pending_sum(decider))


def _partial(rule: OpRule, operands: Sequence[Given], blocked: str | None) -> Placement | Refusal:
    """At least one operand is pending, none is I: is the operator linear in the partial ones?"""
    partial, varying = _pending_sums(rule, operands), _having(operands, V)
    if varying:
        return Refusal("SW110", "varying", partial, varying)
    if not rule.terms:
        return Refusal("SW112", blocked or "nonlinear", partial)
    if blocked:
        return Refusal("SW112", blocked, partial)
    named = _named(rule)
    outside = tuple(position for position in partial if operands[position].param not in named)
    if outside:
        main = operands[outside[0]].param == rule.parameters[0].lstrip("*~")
        return Refusal("SW112" if main else "SW114", "nonlinear" if main else "nonlinear argument", outside)
    alone: tuple[int, ...] | None = None
    for product in products(rule, operands):
        if any(operands[position].placement is Weak.ZERO for position in product):
            continue
        factors = tuple(position for position in product if position in partial)
        if len(factors) > 1:
            return Refusal("SW111", "product", factors)
        if not factors and not is_share(rule, operands, product, partial):
            alone = tuple(sorted(product, key=lambda at: isinstance(operands[at].placement, Weak)))  # tensors first
    return P if alone is None else Refusal("SW113", "added per rank", alone, partial)


def _extremum(rule: OpRule, operands: Sequence[Given], blocked: str | None) -> Placement | Refusal:
    """Some operand is a pending maximum or minimum, none is I: does the operator never decrease in it?"""
    pending = [at for at, operand in enumerate(operands) if _pending(operand.placement)]
    varying, others = _having(operands, V), [at for at in range(len(operands)) if at not in pending]
    first, place = operands[pending[0]], operands[pending[0]].placement
    assert isinstance(place, PerMeshAxisLocalSpmdType), "what is pending is no constant"
    if varying:
        return Refusal("SW110", "varying", tuple(pending), varying)
    same = all(operands[at].placement is place for at in pending)
    leads = first.param == "".join(rule.parameters[:1]).lstrip("*~")
    if blocked and rule.op in NON_DECREASING | LARGEST | SMALLEST:
        return Refusal("SW112", blocked, tuple(pending))
    if same and rule.op in (LARGEST if place.reduction is MAX else SMALLEST):
        return place
    if same and rule.op in PICKS and all(operands[at].param in _named(rule) for at in pending):
        return place
    if len(pending) > 1:
        return Refusal("SW112", "two pending reductions do not combine", tuple(pending))
    if rule.op in NON_DECREASING and leads:
        return place
    by = [operands[at].number for at in others]
    if rule.op in ("add", "sub", "rsub") and len(operands) == 2:  # an alpha would scale one of them
        negated = (rule.op == "sub" and not leads) or (rule.op == "rsub" and leads)
        return place.opposite if negated else place
    if rule.op in ABOVE | BELOW:
        return place if (rule.op in ABOVE) is leads else place.opposite
    if rule.op == "neg":
        return place.opposite
    positive = len(by) == 1 and isinstance(by[0], (int, float)) and by[0] > 0
    if positive and (rule.op == "mul" or (rule.op == "div" and leads)):
        return place
    return Refusal("SW112", "not non-decreasing", tuple(pending))


def _norm(rule: OpRule, operands: Sequence[Given], blocked: str | None) -> Placement | Refusal:
    """Some operand is a pending norm, none is I: its square is a pending sum, and the norm of norms one of all."""
    pending = [at for at, operand in enumerate(operands) if _pending(operand.placement)]
    varying, others = _having(operands, V), [at for at in range(len(operands)) if at not in pending]
    first, place = operands[pending[0]], operands[pending[0]].placement
    assert isinstance(place, PerMeshAxisLocalSpmdType), "what is pending is no constant"
    if varying:
        return Refusal("SW110", "varying", tuple(pending), varying)
    if not all(operands[at].placement is place for at in pending):
        return Refusal("SW112", "two pending reductions do not combine", tuple(pending))
    leads = first.param == "".join(rule.parameters[:1]).lstrip("*~")
    numbers = [operands[at].number for at in others]
    if rule.op in SQUARES and leads and all(number == 2 for number in numbers):
        return P
    if rule.op in JOINS:
        counted = tuple(at for at in others if operands[at].placement is not Weak.ZERO)
        return Refusal("SW113", "added per rank", counted, tuple(pending)) if counted else place
    if rule.op in NORMS and len(pending) == len(operands):
        return Refusal("SW112", blocked, tuple(pending)) if blocked else place
    if leads and (rule.op in MOVES or rule.op == "abs"):
        return place
    positive = len(numbers) == 1 and isinstance(numbers[0], (int, float)) and numbers[0] > 0
    if positive and (rule.op == "mul" or (rule.op == "div" and leads)):
        return place
    return Refusal("SW112", "nonlinear", tuple(pending))


def _named(rule: OpRule) -> set[str]:
    """The parameters that the rule's law is about."""
    return {factor.lstrip("*^") for term in rule.terms for factor in term.factors}


def _pending(place: Placement | Weak) -> bool:
    return not isinstance(place, Weak) and place.is_partial


def is_share(rule: OpRule, operands: Sequence[Given], product: Sequence[int], partial: Sequence[int]) -> bool:
    """Every rank adds one n-th of a term, in the scale of the pending sum: then the sum has it once.

    A term of which nobody knows the scale is no share: without its number it would be added once per rank. One that has
    been divided is, where nobody knows the scale of the sum.
    """
    if rule.kind is Kind.CONTROL:
        return False  # branches and loops carry one type
    own = _exponent_of([operands[at] for at in product])
    sums = {_exponent_of([operands[at] for at in one]) for one in products(rule, operands) if {*one} & {*partial}}
    if all(operands[at].number is not None for at in product):
        return sums == {(own or 0) + 1}
    return own is not None and (sums == {own + 1} or (own < 0 and sums == {None}))


def _exponent_of(factors: Sequence[Given]) -> int | None:
    exponents = [factor.exponent for factor in factors if factor.exponent is not ANY]
    return None if None in exponents else sum(exponents)


def products(rule: OpRule, operands: Sequence[Given]) -> list[tuple[int, ...]]:
    """The rule's polynomial for these operands, each product as positions of operands; absent terms are left out."""
    by_param: dict[str, list[int]] = {}
    for position, operand in enumerate(operands):
        by_param.setdefault(operand.param, []).append(position)
    return [product for term in rule.terms for product in expand(term, by_param)]


def expand(term: Term, by_param: dict[str, list[int]]) -> list[tuple[int, ...]]:
    """The products that a term of a law is for the operands of each parameter, by their positions."""
    choices: list[list[tuple[int, ...]]] = []
    for factor in term.factors:
        positions = by_param.get(factor.lstrip("*^"), [])
        if factor.startswith("^"):
            choices.append([tuple(positions)])
        elif positions:
            choices.append([(position,) for position in positions])
        elif len(term.factors) == 1:
            return []  # an optional summand that was not given, such as a bias
        # An optional factor that was not given, such as a scale, counts as one.
    return [tuple(itertools.chain.from_iterable(choice)) for choice in itertools.product(*choices)]


def _constant(rule: OpRule, operands: Sequence[Given]) -> Weak:
    if rule.terms and operands:
        terms = products(rule, operands)
        if terms and all(any(operands[position].placement is Weak.ZERO for position in product) for product in terms):
            return Weak.ZERO
    return Weak.CONSTANT
