"""The search for steps after which a call is right: candidates in, those that are admitted out, with their cost.

A step is a transition of one operand along one mesh axis. Which steps may be offered is the caller's to say, and so is
what admits them: propagation, run again on the operands after the steps.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from shardwise.op_rules.transitions import ROUTES, find_transition, letter
from shardwise.types.placement import PerMeshAxisSpmdType

from .cost import FREE, Cost, Interconnect, cost_of

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Step:
    """Take the operand at ``position`` from ``src`` to ``dst`` with ``op``.

    ``cost``      what that costs in forward, and ``gradient`` what its gradient costs in backward.
    ``effect``    the same in words, where sizes are not known.
    """

    position: int
    op: str
    src: PerMeshAxisSpmdType
    dst: PerMeshAxisSpmdType
    cost: Cost = FREE
    gradient: Cost = FREE
    effect: str = ""


@dataclass(frozen=True, slots=True)
class Repair(Generic[Result]):
    """Steps after which the call is admitted, and what admits it: its ``result``."""

    steps: tuple[Step, ...]
    result: Result

    @property
    def cost(self) -> Cost:
        """What one rank pays in forward."""
        return sum((step.cost for step in self.steps), FREE)

    @property
    def gradient(self) -> Cost:
        """What one rank pays for the gradients of the steps."""
        return sum((step.gradient for step in self.steps), FREE)


def step(
    position: int, src: PerMeshAxisSpmdType, dst: PerMeshAxisSpmdType, elements: int, size: int, dtype: str = "float32"
) -> Step:
    """The step from ``src`` to ``dst`` of an operand of which each of ``size`` ranks holds ``elements``."""
    op = ROUTES[letter(src), letter(dst)]
    row = find_transition(op, src, dst)
    assert row is not None, "every route is a row of the table"
    forward = cost_of(op, elements, size, dtype)
    after = {"all_gather": elements * size, "reduce_scatter": elements // size}.get(op, elements)
    if op == "convert" and letter(dst) == "S":
        after = elements // size
    assert row.backward is not None, "no step is offered that no gradient goes through"
    return Step(position, op, src, dst, forward, cost_of(row.backward[0], after, size, dtype))


def combinations(options: Sequence[Sequence[Step]], most: int) -> Iterator[tuple[Step, ...]]:
    """One step each of at most ``most`` operands; ``options`` are the steps of every operand."""
    for count in range(1, most + 1):
        for chosen in itertools.combinations(options, count):
            yield from itertools.product(*chosen)


def search(
    candidates: Iterable[tuple[Step, ...]], admits: Callable[[tuple[Step, ...]], Result | None]
) -> Iterator[Repair[Result]]:
    """The candidates after which the call is admitted, in their order. ``admits`` gives None for one that is not."""
    for steps in candidates:
        result = admits(steps)
        if result is not None:
            yield Repair(steps, result)


def cheapest(plans: Iterable[Repair[Result]], link: Interconnect) -> list[Repair[Result]]:
    """By the time over the axis in forward, then in backward; then by the number of steps."""
    return sorted(plans, key=lambda plan: (plan.cost.seconds(link), plan.gradient.seconds(link), len(plan.steps)))
