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
from .situations import Situation, Situations

Numbered = tuple[int, int]
"""A state: the bits of the axes over which a reduction is pending, and the number of the cut."""


def shortest(problem: Problem) -> Sequence[Move] | None:
    """The moves from start to goal that cost least; None if there is no way.

    Steps that differ in their ends wait in the queue together, with the least that any of them costs, until that is
    the least of all. How much is left to do after something is known exactly when it is looked at, not before.
    """
    cuts, fans, situations = problem.cuts, Fans(problem), Situations(problem)
    left = Remaining(problem, situations)
    start, goal = ((pending, cuts.number(entries)) for pending, entries in (problem.start, problem.goal))
    spent: defaultdict[int, dict[int, int]] = defaultdict(dict)  # by what is pending, then by cut
    spent[start[0]][start[1]] = 0
    came: dict[Numbered, tuple[Numbered, Fan, int, int]] = {}
    order = 0
    # Of states that look alike the one that is furthest on its way comes first.
    situation, steps = situations.of(*start)
    queue: list[tuple[float, int, Numbered, int, Fan | None, int, Situation]] = [
        (0, order, start, 0, None, steps, situation)
    ]
    least: int | float = float("inf")  # of the ways to the goal that have been seen
    while queue:
        bound, place, state, sofar, waiting, known, situation = heapq.heappop(queue)
        pending, number = state
        if sofar != spent[pending][number]:
            continue
        exact = known + left.least(situation)
        if exact > bound:
            if exact <= least:
                heapq.heappush(queue, (exact, place, state, sofar, waiting, known, situation))
            continue
        if state == goal:
            return _path(problem, came, state)
        if waiting is None:
            found: Iterable[Fan] = fans.of(pending, number, came[state][1] if state in came else None)
        else:
            found = (waiting,) if waiting.finer is None else waiting.finer()
        for fan in found:
            still = pending & ~fan.summed | fan.made
            if fan is not waiting and (callable(fan.ends) or fan.finer is not None):
                known = sofar + fan.least
                if known < least:
                    situation, steps = situations.after(number, still, fan)
                    known += steps
                    bound = known + left.at_least(situation)
                    if bound < least:
                        order -= 1
                        heapq.heappush(queue, (bound, order, state, sofar, fan, known, situation))
                continue
            costs = spent[still]
            for cut, price, elements in fan.ends() if callable(fan.ends) else fan.ends:
                now = sofar + price
                if now < costs.get(cut, least):
                    costs[cut] = now
                    after = still, cut
                    came[after] = state, fan, elements, price
                    situation, steps = situations.of(still, cut)
                    known = now + steps
                    bound = known + left.at_least(situation)
                    if after == goal:
                        least = now
                    if bound <= least:
                        order -= 1
                        heapq.heappush(queue, (bound, order, after, now, None, known, situation))
    return None


def _path(problem: Problem, came: dict[Numbered, tuple[Numbered, Fan, int, int]], state: Numbered) -> list[Move]:
    path = []
    while state in came:
        before, fan, elements, price = came[state]
        after = state[0], problem.cuts.entries[state[1]]
        path.append(Move(price, fan.op, fan.axes, after, elements, fan.messages))
        state = before
    return path[::-1]
