"""The sharded rule: from labels and what the operands are along one mesh axis to the sharded dims of the results; pure.

Source: docs/semantics.md section 7, Law 7.2. Along one axis at most one label is sharded. A kept label must be
sharded in every operand that carries it and the others must be replicate; a summed one gives a partial result, on
request; nothing else is valid.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from shardwise.types.placement import MAX, MIN, NORM, P, PerMeshAxisLocalSpmdType, Placement, V

from ..schema import OpRule
from .dim_labels import Fate, Label, Labelling
from .local import Given, Refusal, Weak, is_share, products

_OWN = "this rank sees only its own elements of the dim that is reduced"
_REASONS = {
    Fate.MEAN: "a mean over a sharded dim is the mean of this rank's elements only",
    Fate.MAXIMUM: _OWN,
    Fate.MINIMUM: _OWN,
    Fate.NORM: "the powers of all ranks are summed before the root",
    Fate.EXTREMUM: _OWN,
    Fate.OPAQUE: "every element along the dim is needed at once",
    Fate.POSITION: "the values depend on the position along the dim, and every shard starts counting at 0",
}
_CODES = {
    Fate.MEAN: "SW403",
    **dict.fromkeys((Fate.MAXIMUM, Fate.MINIMUM, Fate.EXTREMUM), "SW404"),
    **dict.fromkeys((Fate.OPAQUE, Fate.NORM), "SW405"),
    Fate.POSITION: "SW406",
}
_PENDING = {Fate.MAXIMUM: P(MAX), Fate.MINIMUM: P(MIN), Fate.NORM: P(NORM)}


@dataclass(frozen=True, slots=True)
class Sharded:
    """What one operand is along the axis: ``dim`` it is sharded on, or its local placement (dim None).

    ``uniform``  the operand has one value everywhere (a number, zeros): it can be cut anywhere.
    ``uneven``   its shards may differ in length.
    ``elsewhere`` its dims that other axes shard: one of size 1 is no dim of size 1 there.
    """

    placement: Placement | None
    dim: int | None = None
    uniform: bool = False
    uneven: bool = False
    elsewhere: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Placed:
    """The result along the axis: its placement and, per result tensor, the dim that is sharded.

    ``total``   the ranks' results are the addends of the global one, whatever the rule's linear law says.
    ``uneven``  the result's shards may differ in length.
    ``averaged`` each addend is the mean of as many elements as every rank has: their sum is the mean times the ranks.
    """

    placement: PerMeshAxisLocalSpmdType
    dims: tuple[int | None, ...]
    total: bool = False
    uneven: bool = False
    averaged: bool = False


def sharded_rule(labelling: Labelling, operands: Sequence[Sharded], *, partials: bool) -> Placed | Refusal:
    """The result's sharding along an axis over which some operand is sharded.

    ``partials``: a contraction over a sharded dim may give a partial result without being asked.
    """
    carried = [(at, _label(labelling, at, one)) for at, one in enumerate(operands) if one.dim is not None]
    broadcast = [at for at, label in carried if label is None]
    if broadcast:
        return Refusal("SW402", "a dim of size 1 that is broadcast cannot be a shard", tuple(broadcast))
    labels = {label for _, label in carried}
    positions = tuple(at for at, _ in carried)
    if len(labels) > 1:
        mixed = next((label for _, label in carried if label in labelling.why and _is_opaque(labelling, label)), None)
        if mixed is not None:
            culprits = tuple(at for at, label in carried if label == mixed)
            return Refusal("SW405", labelling.why[mixed], culprits, positions)
        return Refusal("SW401", "different dims are sharded over one axis", positions)
    label = next(iter(labels))
    assert label is not None, "broadcast dims were refused above"
    whole = [
        at
        for at, one in enumerate(operands)
        if one.dim is None and not one.uniform and label in labelling.operands[at]
        if (at, label) not in labelling.spread or any(labelling.operands[at][dim] == label for dim in one.elsewhere)
    ]
    if whole:
        return Refusal("SW402", "has the whole of a dim that the others have sharded", tuple(whole), positions)
    fate = labelling.fate(label)
    dims = tuple(dims.index(label) if label in dims else None for dims in labelling.results)
    if fate is None:
        uneven = [at for at, _ in carried if operands[at].uneven]
        if uneven and label in labelling.even:
            return Refusal("SW417", "only shards of one length give results that fit together", tuple(uneven))
        # Operands that share a dim have shards of one length each; where one operand's are even, all are.
        return Placed(V, dims, uneven=len(uneven) == len(carried) or label in labelling.ragged)
    if fate in (Fate.SUM, Fate.TOTAL):
        if partials:
            return Placed(P, (None,) * len(labelling.results), fate is Fate.TOTAL)
        return Refusal("SW407", "the sum over a sharded dim is pending and nobody asked for it", positions)
    alike = label not in labelling.weighed and not any(operands[at].uneven for at, _ in carried)
    if fate is Fate.MEAN and partials and alike:
        return Placed(P, (None,) * len(labelling.results), total=True, averaged=True)
    if fate in _PENDING and partials:
        return Placed(_PENDING[fate], (None,) * len(labelling.results), total=True)
    return Refusal(_CODES[fate], labelling.why.get(label, _REASONS[fate]), positions)


def not_pending(
    rule: OpRule, operands: Sequence[Given], cut: Collection[int], alike: Collection[int] = ()
) -> Refusal | None:
    """Why a contraction over the dim that ``cut`` have sharded leaves no pending sum; None if it does.

    It is pending in every term that has the dim; another term may be added if it is a pending sum itself, or one that
    every rank adds one n-th of.
    ``alike``  operands of one value everywhere that have the dim: a shard of ones is ones.
    """
    culprits = tuple(sorted(cut))
    pending = {at for at, operand in enumerate(operands) if operand.placement is P}
    if not rule.terms:
        return Refusal("SW405", "not linear, so the sum over the shards does not commute with it", culprits)
    for product in products(rule, operands):
        sums = [at for at in product if operands[at].placement is P]
        if any(at in cut for at in product):
            sums += [-1]
        if len(sums) > 1:
            return Refusal("SW111", "product", tuple(at for at in product if at in sums or at in cut))
        has_dim = any(at in cut or at in alike for at in product) or bool(sums)
        if has_dim or any(operands[at].placement is Weak.ZERO for at in product):
            continue
        if not is_share(rule, operands, product, (*cut, *pending)):
            return Refusal("SW113", "added per rank", tuple(sorted(set(product))), culprits)
    return None


def _is_opaque(labelling: Labelling, label: Label | None) -> bool:
    return label is not None and labelling.fate(label) is Fate.OPAQUE


def _label(labelling: Labelling, at: int, one: Sharded) -> Label | None:
    assert one.dim is not None, "only a sharded operand has a label"
    return labelling.operands[at][one.dim]
