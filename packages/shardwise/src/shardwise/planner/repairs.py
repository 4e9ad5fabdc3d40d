"""What would mend a refused call along one mesh axis: the steps of its operands after which propagation admits it.

A repair is offered only if the call type-checks after it, so every line of help has been tried.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

from shardwise.op_rules.propagation.dim_labels import Call, Labelling, Shape
from shardwise.op_rules.propagation.einsum_calculus import Placing, derive
from shardwise.op_rules.propagation.local import Given, Refusal, Weak, local_rules
from shardwise.op_rules.propagation.sharded import Sharded, not_pending, sharded_rule
from shardwise.op_rules.schema import OpRule
from shardwise.types.placement import I, P, PerMeshAxisSpmdType, Placement, R, Shard, V, to_local_type

from .cost import Interconnect
from .links import DEFAULT
from .search import Repair, Step, cheapest, combinations, search, step

_OFFERED = (
    Step(0, "convert", I, R, effect="no communication in forward, all-reduce of the gradient in backward"),
    Step(0, "convert", I, P, effect="zeroes all ranks but the first, nothing in backward"),
    Step(0, "all_reduce", P, R, effect="all-reduce in forward and in backward"),
    Step(0, "all_reduce", P, I, effect="all-reduce in forward, nothing in backward"),
    Step(0, "convert", R, P, effect="zeroes all ranks but the first, in forward and in backward"),
)
"""In the order in which they are tried: first what costs nothing in forward.

R -> I and V -> P are never offered, because they assert something that only the author can know.
"""
_MOST_OPERANDS = 4
"""A call with more tensors gets single steps only; the pairs would be many and the help line long."""


def local_repairs(rule: OpRule, givens: Sequence[Given], *, blocked: str | None = None) -> list[Repair[Placement]]:
    """Steps after which the local rule admits the operands, best first: of one operand if that is enough."""

    def admits(steps: Sequence[Step]) -> Placement | None:
        return _after_local(rule, givens, steps, blocked)

    at = [
        [replace(one, position=at) for at, given in enumerate(givens) if given.placement is one.src] for one in _OFFERED
    ]
    found: list[Repair[Placement]] = []
    for steps in at:
        found += itertools.islice(search(((one,) for one in steps), admits), 1)
    return found or list(search((tuple(steps) for steps in at if len(steps) > 1), admits))


def contraction_repairs(rule: OpRule, givens: Sequence[Given], cut: Collection[int]) -> list[Repair[Placement]]:
    """Steps of one operand after which every term of a contraction over a sharded dim is pending.

    ``cut``  the operands that have the dim, which the local rule takes for values that vary.
    """

    def admits(steps: Sequence[Step]) -> Placement | None:
        moved = {one.position: to_local_type(one.dst) for one in steps}
        after = [replace(given, placement=moved.get(at, given.placement)) for at, given in enumerate(givens)]
        if any(given.placement is I for given in after):
            return None
        return P if not_pending(rule, after, cut) is None else None

    at_whole = [(at, given) for at, given in enumerate(givens) if at not in cut]
    return list(
        search(
            ((replace(one, position=at),) for at, given in at_whole for one in _OFFERED if one.src is given.placement),
            admits,
        )
    )


def _after_local(rule: OpRule, givens: Sequence[Given], steps: Sequence[Step], blocked: str | None) -> Placement | None:
    moved = {one.position: to_local_type(one.dst) for one in steps}
    changed = [replace(given, placement=moved.get(at, given.placement)) for at, given in enumerate(givens)]
    result = local_rules(rule, changed, blocked=blocked)
    if isinstance(result, Refusal) or isinstance(result[0], Weak):
        return None
    others = [other for at, other in enumerate(givens) if at not in moved]
    alone = local_rules(rule, others, blocked=blocked) if others else result
    # A repair must not turn a sum that the others complete into a pending one.
    completed = not isinstance(alone, Refusal) and not isinstance(alone[0], Weak) and alone[0] is not result[0]
    return None if completed and P in moved.values() else result[0]


def sharding_repairs(
    rule: OpRule,
    call: Call,
    sharded: Sequence[Sharded],
    size: int,
    *,
    partials: bool = True,
    link: Interconnect = DEFAULT,
) -> list[Repair[Placement]]:
    """Steps of at most two operands after which the global rule admits the call, cheapest first.

    ``sharded``   what each of the call's tensors is along the axis, which has ``size`` ranks.
    ``partials``  a contraction over a sharded dim may leave a pending sum without being asked.
    ``link``      what connects the ranks of the axis.
    """
    if rule.labels is None or not call.tensors:
        return []
    tensors = zip(call.tensors, sharded, strict=True)
    options = [list(_moves(at, shape, one, size)) for at, (shape, one) in enumerate(tensors)]

    def admits(steps: Sequence[Step]) -> Placement | None:
        return _after_moves(rule, call, sharded, steps, size, partials)

    return cheapest(search(combinations(options, 2 if len(options) <= _MOST_OPERANDS else 1), admits), link)


def einsum_repairs(
    operands: Sequence[Sequence[str]], result: Sequence[str], placings: Sequence[Placing]
) -> list[Repair[Placing]]:
    """Steps of at most two operands after which an einsum is legal, cheapest first; all labels count as equally long.

    ``operands`` and ``result`` are terms of labels; S(i) in a step is the dim that the operand's label i labels.
    """
    options = [list(_placed_anew(*each)) for each in zip(range(len(operands)), operands, placings, strict=True)]

    def admits(steps: Sequence[Step]) -> Placing | None:
        after = list(placings)
        for one in steps:
            labels, dst = operands[one.position], one.dst
            after[one.position] = Placing(V, labels[dst.dim]) if isinstance(dst, Shard) else Placing(dst)
        outcome = derive(operands, result, after)
        return None if isinstance(outcome, Refusal) else outcome[0]

    return cheapest(search(combinations(options, 2), admits), DEFAULT)


_NOMINAL = 8
"""The extent of every label, and the ranks of the axis, where neither is known."""


def _placed_anew(at: int, labels: Sequence[str], now: Placing) -> Iterator[Step]:
    """What can be done with one operand of an einsum along the axis."""
    src = Shard(labels.index(now.label)) if now.label else now.placement
    elements = _NOMINAL ** (len(labels) - isinstance(src, Shard))
    goals: list[PerMeshAxisSpmdType] = [R, *map(Shard, range(len(labels)))]
    yield from (step(at, src, dst, elements, _NOMINAL) for dst in goals if dst != src)


def _moves(at: int, shape: Shape, now: Sharded, size: int) -> Iterator[Step]:
    """What can be done with one operand along the axis: gather it, cut another of its dims, or cut it."""
    elements = math.prod(shape.shape)
    even = [Shard(dim) for dim, extent in enumerate(shape.shape) if extent % size == 0]
    if now.dim is not None:
        src = Shard(now.dim)
        yield step(at, src, R, elements, size, shape.dtype)
        if not now.uneven:
            yield from (step(at, src, dst, elements, size, shape.dtype) for dst in even if dst != src)
    elif now.placement is R:
        yield from (step(at, R, dst, elements, size, shape.dtype) for dst in even)


def _after_moves(
    rule: OpRule, call: Call, now: Sequence[Sharded], steps: Sequence[Step], size: int, partials: bool
) -> Placement | None:
    """The result's placement after ``steps``; None if the call is still refused."""
    shapes, after = list(call.tensors), list(now)
    for one in steps:
        shapes[one.position] = _reshaped(shapes[one.position], one, size)
        cut = one.dst.dim if isinstance(one.dst, Shard) else None
        after[one.position] = Sharded(R) if cut is None else Sharded(V, cut, now[one.position].uniform)
    labelling = rule.labels(replace(call, tensors=tuple(shapes))) if rule.labels is not None else None
    if labelling is None or not _agree(labelling, shapes):
        return None
    if all(one.dim is None for one in after):
        return None if any(one.placement.is_partial for one in after if one.placement is not None) else R
    placed = sharded_rule(labelling, after, partials=partials)
    return None if isinstance(placed, Refusal) else placed.placement


def _reshaped(shape: Shape, step: Step, size: int) -> Shape:
    extents = list(shape.shape)
    if isinstance(step.src, Shard):
        extents[step.src.dim] *= size
    if isinstance(step.dst, Shard):
        extents[step.dst.dim] //= size
    return replace(shape, shape=tuple(extents))


def _agree(labelling: Labelling, shapes: Sequence[Shape]) -> bool:
    """True if every label has one extent, so that the operator would accept the repaired shapes."""
    extents: dict[str, int] = {}
    return all(extents.setdefault(label, extent) == extent for label, extent in _labelled(labelling, shapes))


def _labelled(labelling: Labelling, shapes: Sequence[Shape]) -> Iterator[tuple[str, int]]:
    for dims, shape in zip(labelling.operands, shapes, strict=False):
        for label, extent in zip(dims, shape.shape, strict=False):
            if label is not None:
                yield label, extent
