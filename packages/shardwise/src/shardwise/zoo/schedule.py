"""What the ranks of a pipeline do in which order, when each can do it, and the picture of that: time by rank.

A unit of time is what one stage takes for the forward pass of one micro-batch. Backward takes two: one for the gradient
of its input, which the stage before waits for, and one for the gradients of its weights, which nobody waits for.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cached_property

from shardwise.diagnostics.errors import SpmdValueError


class TaskKind(Enum):
    """What is done with a micro-batch: its letter, and the units of time that it takes."""

    FORWARD = ("F", 1)
    BACKWARD = ("B", 2)
    BACKWARD_INPUT = ("B", 1)
    """The gradient of the input."""
    BACKWARD_WEIGHT = ("W", 1)
    """The gradients of the weights."""

    @property
    def letter(self) -> str:
        return self.value[0]

    @property
    def units(self) -> int:
        return self.value[1]


@dataclass(frozen=True)
class Task:
    """Something done with micro-batch ``micro`` in ``stage``, which is counted over all ranks: 0 has the input."""

    kind: TaskKind
    micro: int
    stage: int

    def __str__(self) -> str:
        return f"{self.kind.letter}{self.micro}"

    def needs(self, stages: int) -> Task | None:
        """What must be done before, on this rank or another."""
        if self.kind is TaskKind.FORWARD:
            return Task(self.kind, self.micro, self.stage - 1) if self.stage else None
        if self.kind is TaskKind.BACKWARD_WEIGHT:
            return Task(TaskKind.BACKWARD_INPUT, self.micro, self.stage)
        if self.stage == stages - 1:
            return Task(TaskKind.FORWARD, self.micro, self.stage)
        return Task(self.kind, self.micro, self.stage + 1)


Order = Callable[[int, int], Sequence[Task]]
"""The tasks of a rank, in order: of its number and of how many ranks there are."""


@dataclass(frozen=True)
class Timed:
    """A task and when it starts, in units since the first."""

    start: int
    task: Task

    @property
    def end(self) -> int:
        return self.start + self.task.kind.units


@dataclass(frozen=True)
class ScheduleTimes:
    """The tasks of every rank with their times, if all start as soon as they can and messages take no time."""

    ranks: tuple[tuple[Timed, ...], ...]

    @cached_property
    def units(self) -> int:
        """From the first task to the end of the last one."""
        return max((timed.end for rank in self.ranks for timed in rank), default=0)

    def idle(self, rank: int) -> int:
        """The units in which ``rank`` waits: the bubble of the pipeline."""
        return self.units - sum(timed.task.kind.units for timed in self.ranks[rank])

    def held(self, rank: int) -> int:
        """The most micro-batches whose activations a rank has at once: from forward to the end of backward."""
        now = most = 0
        last = {(timed.task.micro, timed.task.stage): timed for timed in self.ranks[rank]}
        for timed in self.ranks[rank]:
            now += timed.task.kind is TaskKind.FORWARD
            most = max(most, now)
            now -= last[timed.task.micro, timed.task.stage] is timed
        return most


def alternating(first: Sequence[Task], second: Sequence[Task], ahead: int) -> list[Task]:
    """``ahead`` of the first, or all if there are fewer; then one of each in turn; then what is left of the second."""
    ahead = min(ahead, len(first))
    pairs = [task for pair in zip(first[ahead:], second, strict=False) for task in pair]
    return [*first[:ahead], *pairs, *second[len(first) - ahead :]]


def times_of(order: Order, ranks: int) -> ScheduleTimes:
    """When every task starts.

    Errors: SW905 if ranks wait for each other for ever, with what each waits for.
    """
    waiting = [list(reversed(order(rank, ranks))) for rank in range(ranks)]
    stages = 1 + max((task.stage for tasks in waiting for task in tasks), default=0)
    done: dict[Task, int] = {}
    times: list[list[Timed]] = [[] for _ in range(ranks)]
    asking: defaultdict[Task, list[int]] = defaultdict(list)  # the ranks that go on when this is done
    ready = list(range(ranks))
    while ready:
        rank = ready.pop()
        tasks = waiting[rank]
        while tasks:
            needed = tasks[-1].needs(stages)
            if needed is not None and needed not in done:
                asking[needed].append(rank)
                break
            task = tasks.pop()
            free = times[rank][-1].end if times[rank] else 0
            timed = Timed(max(free, done[needed] if needed else 0), task)
            times[rank].append(timed)
            done[task] = timed.end
            ready += asking.pop(task, ())
    stuck = [f"rank {rank} with {tasks[-1]} of stage {tasks[-1].stage}" for rank, tasks in enumerate(waiting) if tasks]
    if stuck:
        raise SpmdValueError(f"the schedule never ends: {', '.join(stuck)}", code="SW905")
    return ScheduleTimes(tuple(map(tuple, times)))
