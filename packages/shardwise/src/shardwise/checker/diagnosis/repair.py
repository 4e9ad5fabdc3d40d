"""What would mend a refused call? Tries the typed transitions on the operands by running the local rule again.

A repair is offered only if the call type-checks after it, so every line of help has been tried.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from shardwise.op_rules.propagation.local import Given, Refusal, Weak, local_rules
from shardwise.op_rules.schema import OpRule
from shardwise.types.placement import I, P, PerMeshAxisLocalSpmdType, R


@dataclass(frozen=True, slots=True)
class Remedy:
    """A call that changes one operand's placement, and what it costs."""

    src: PerMeshAxisLocalSpmdType
    dst: PerMeshAxisLocalSpmdType
    call: str
    cost: str


# In the order in which they are tried: first what costs nothing in forward. R -> I and V -> P are never suggested,
# because they assert something that only the author can know.
TRANSITIONS = (
    Remedy(I, R, "convert", "no communication in forward, all-reduce of the gradient in backward"),
    Remedy(I, P, "convert", "zeroes all ranks but the first, nothing in backward"),
    Remedy(P, R, "all_reduce", "all-reduce in forward and in backward"),
    Remedy(P, I, "all_reduce", "all-reduce in forward, nothing in backward"),
    Remedy(R, P, "convert", "zeroes all ranks but the first, in forward and in backward"),
)


@dataclass(frozen=True, slots=True)
class Repair:
    """Apply ``transition`` to each of the operands at ``positions`` before the call."""

    positions: tuple[int, ...]
    transition: Remedy


def repairs(rule: OpRule, givens: Sequence[Given], *, blocked: str | None = None) -> Iterator[Repair]:
    """The transitions after which ``local_rules`` admits the operands, best first: of one operand if that is enough."""
    found = False
    for transition in TRANSITIONS:
        for position in _at(givens, transition.src):
            if _mends(rule, givens, transition, (position,), blocked):
                found = True
                yield Repair((position,), transition)
                break
    if found:
        return
    for transition in TRANSITIONS:
        positions = _at(givens, transition.src)
        if len(positions) > 1 and _mends(rule, givens, transition, positions, blocked):
            yield Repair(positions, transition)


def _at(givens: Sequence[Given], place: PerMeshAxisLocalSpmdType) -> tuple[int, ...]:
    return tuple(position for position, given in enumerate(givens) if given.place is place)


def _mends(
    rule: OpRule, givens: Sequence[Given], transition: Remedy, positions: tuple[int, ...], blocked: str | None
) -> bool:
    changed = [replace(g, place=transition.dst) if at in positions else g for at, g in enumerate(givens)]
    result = local_rules(rule, changed, blocked=blocked)
    if isinstance(result, Refusal) or isinstance(result[0], Weak):
        return False
    others = [other for at, other in enumerate(givens) if at not in positions]
    alone = local_rules(rule, others, blocked=blocked) if others else result
    # A repair must not turn a sum that the others complete into a pending one.
    return transition.dst is not P or isinstance(alone, Refusal) or isinstance(alone[0], Weak) or alone[0] is result[0]
