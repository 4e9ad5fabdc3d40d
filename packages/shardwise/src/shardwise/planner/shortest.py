"""The cheapest path between two layouts: A* over ``moves``, exact in time, then in collectives, then in local steps.

Source: Hart, Nilsson and Raphael 1968 (A*).
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Iterable, Sequence

from .moves import Fan, Fans, Move
from .problem import Problem
from .remaining import Remaining
from .situations import Ahead, Situation, Situations

Numbered = tuple[int, int]
"""A state: the bits of the axes over which a reduction is pending, and the number of the cut."""


def shortest(problem: Problem) -> Sequence[Move] | None:
    """The moves from start to goal that cost least; None if there is no way."""
    return _Search(problem).path()


class _Search:
    """A search for the cheapest path.

    Steps that differ in their ends wait in the queue together, with the least that any of them costs, until that is the
    least of all. How much is left to do after something is found exactly when it could be the next, not before.
    An entry of the queue: the bound, its place among equal ones, the state and what has been spent until there, steps
    from it or None for the state itself, and what is known of the bound, to which what is left in a situation is added.
    """

    def __init__(self, problem: Problem) -> None:
        self.problem, self.fans, self.situations = problem, Fans(problem), Situations(problem)
        self.left = Remaining(problem, self.situations)
        self.start, self.goal = ((state[0], problem.cuts.number(state[1])) for state in (problem.start, problem.goal))
        self.spent: defaultdict[int, dict[int, int]] = defaultdict(dict)  # by what is pending, then by cut
        self.came: dict[Numbered, tuple[Numbered, Fan, int, int]] = {}
        self.least: float = float("inf")  # of the ways to the goal that have been seen
        self.queue: list[tuple[float, int, Numbered, int, Fan | None, int, Situation]] = []
        self.order = 0

    def path(self) -> list[Move] | None:
        """The moves of the cheapest one; None if there is none."""
        left, queue, spent = self.left, self.queue, self.spent
        spent[self.start[0]][self.start[1]] = 0
        self._wait(self.start, 0, None, 0, self.situations.of(self.start[1], self.start[0]))
        while queue:
            bound, place, state, sofar, waiting, known, situation = heapq.heappop(queue)
            if sofar != spent[state[0]][state[1]]:
                continue
            exact = known + left.least(situation)
            if exact > bound:
                if exact <= self.least:
                    heapq.heappush(queue, (exact, place, state, sofar, waiting, known, situation))
            elif state == self.goal:
                return self._path(state)
            elif waiting is None:
                self._look(state, sofar, self.fans.of(*state, self.came[state][1] if state in self.came else None))
            elif waiting.finer is not None:
                self._look(state, sofar, waiting.finer())
            else:
                self._reach(state, sofar, waiting)
        return None

    def _look(self, state: Numbered, sofar: int, fans: Iterable[Fan]) -> None:
        """Let steps wait; of a step whose end is known, the state there."""
        pending, number = state
        for fan in fans:
            if not fan.late:
                self._reach(state, sofar, fan)
            elif (known := sofar + fan.least) < self.least:
                still = pending & ~fan.summed | fan.made
                ahead = self.situations.of(number, still, fan.bits | fan.summed, fan.aim)
                self._wait(state, sofar, fan, known, ahead)

    def _reach(self, state: Numbered, sofar: int, fan: Fan) -> None:
        """Let the states wait to which steps lead, those to which no cheaper way is known."""
        still = state[0] & ~fan.summed | fan.made
        costs, least, goal, of = self.spent[still], self.least, self.goal, self.situations.of
        for cut, price, elements in fan.ends() if callable(fan.ends) else fan.ends:
            now = sofar + price
            if now < costs.get(cut, least):
                costs[cut] = now
                after = still, cut
                self.came[after] = state, fan, elements, price
                if after == goal:
                    self.least = least = now
                self._wait(after, now, None, now, of(cut, still))

    def _wait(self, state: Numbered, sofar: int, fan: Fan | None, known: int, ahead: Ahead) -> None:
        """Put a state in the queue, or steps from it: ``known`` is what has been spent, and what they cost at least.

        Of those that look alike the one that is furthest on its way comes first.
        """
        situation, steps = ahead
        known += steps
        bound = known + self.left.at_least(situation)
        if bound < self.least or (fan is None and bound == self.least):
            self.order -= 1
            heapq.heappush(self.queue, (bound, self.order, state, sofar, fan, known, situation))

    def _path(self, state: Numbered) -> list[Move]:
        path = []
        while state in self.came:
            before, fan, elements, price = self.came[state]
            after = state[0], self.problem.cuts.entries[state[1]]
            path.append(Move(price, fan.op, fan.axes, after, elements, fan.messages))
            state = before
        return path[::-1]
