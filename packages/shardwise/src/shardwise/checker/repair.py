"""What would mend a refused call? Tries the typed transitions on the operands by running the local rule again.

A repair is offered only if the call type-checks after it, so every line of help has been tried.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from shardwise.rules.algebra import Given, Refusal, Weak, local_rule
from shardwise.rules.row import Row
from shardwise.types.placement import I, P, PerMeshAxisLocalSpmdType, R


@dataclass(frozen=True, slots=True)
class Transition:
    """A call that changes one operand's placement, and what it costs."""

    src: PerMeshAxisLocalSpmdType
    dst: PerMeshAxisLocalSpmdType
    call: str
    cost: str


# In the order in which they are tried: first what costs nothing in forward. R -> I and V -> P are never suggested,
# because they assert something that only the author can know.
TRANSITIONS = (
    Transition(I, R, "convert", "no communication in forward, all-reduce of the gradient in backward"),
    Transition(I, P, "convert", "zeroes all ranks but the first, nothing in backward"),
    Transition(P, R, "all_reduce", "all-reduce in forward and in backward"),
    Transition(P, I, "all_reduce", "all-reduce in forward, nothing in backward"),
    Transition(R, P, "convert", "zeroes all ranks but the first, in forward and in backward"),
)


@dataclass(frozen=True, slots=True)
class Repair:
    """Apply ``transition`` to the operand at ``position`` before the call."""

    position: int
    transition: Transition


def repairs(row: Row, givens: Sequence[Given], *, blocked: str | None = None) -> Iterator[Repair]:
    """The single transitions after which ``local_rule`` admits the operands, best first."""
    for transition in TRANSITIONS:
        for position, given in enumerate(givens):
            if given.place is not transition.src:
                continue
            changed = [*givens]
            changed[position] = replace(given, place=transition.dst)
            result = local_rule(row, changed, blocked=blocked)
            if isinstance(result, (Refusal, Weak)):
                continue
            others = [other for at, other in enumerate(givens) if at != position]
            alone = local_rule(row, others, blocked=blocked) if others else result
            # A repair must not turn a sum that the others complete into a pending one.
            if transition.dst is P and not isinstance(alone, (Refusal, Weak)) and alone is not result:
                continue
            yield Repair(position, transition)
            break
