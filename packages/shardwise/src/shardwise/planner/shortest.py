"""The cheapest path between two layouts: A* over ``moves``, exact in time, then in collectives, then in local steps.

Source: Hart, Nilsson and Raphael 1968 (A*).
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Sequence

from .moves import Approach, Fan, Move, fans
from .problem import Problem
from .remaining import Remaining

Numbered = tuple[int, int]
"""A state: the bits of the axes over which a reduction is pending, and the number of the cut."""


def shortest(problem: Problem) -> Sequence[Move] | None:
    """The moves from start to goal that cost least; None if there is no way."""
    cuts, left = problem.cuts, Remaining(problem).least
    start, goal = ((pending, cuts.number(entries)) for pending, entries in (problem.start, problem.goal))
    spent: defaultdict[int, dict[int, int]] = defaultdict(dict)  # by what is pending, then by cut
    spent[start[0]][start[1]] = 0
    bounds: dict[Numbered, int] = {}
    came: dict[Numbered, tuple[Numbered, Fan, int, int]] = {}
    cheapest: dict[tuple[int, int], int] = {}  # of those looked at: by what is pending, and what axes cut
    order = 0
    # Of states that look alike the one that is furthest on its way comes first.
    queue: list[tuple[int, int, Numbered, int]] = [(0, order, start, 0)]
    least: int | float = float("inf")  # of the ways to the goal that have been seen
    while queue:
        _, _, state, sofar = heapq.heappop(queue)
        if sofar != spent[state[0]][state[1]]:
            continue
        if state == goal:
            return _path(problem, came, state)
        alike = state[0], cuts.bits[state[1]]
        step, elements = came[state][1:3] if state in came else (None, 0)
        known = cheapest.get(alike, sofar + 1) <= sofar
        approach = Approach(step, elements, known, sofar, spent[state[0]], least)
        cheapest[alike] = min(sofar, cheapest.get(alike, sofar))
        for fan in fans(problem, *state, approach):
            pending = fan.pending
            costs = spent[pending]
            for cut, price, elements in fan.ends:
                now = sofar + price
                if now < costs.get(cut, least):
                    costs[cut] = now
                    after = pending, cut
                    came[after] = state, fan, elements, price
                    bound = bounds.get(after)
                    if bound is None:
                        bound = bounds[after] = left(pending, cut)
                    if after == goal:
                        least = now
                    order -= 1
                    heapq.heappush(queue, (now + bound, order, after, now))
    return None


def _path(problem: Problem, came: dict[Numbered, tuple[Numbered, Fan, int, int]], state: Numbered) -> list[Move]:
    path = []
    while state in came:
        before, fan, elements, price = came[state]
        after = state[0], problem.cuts.entries[state[1]]
        path.append(Move(price, fan.op, fan.axes, after, elements, fan.messages))
        state = before
    return path[::-1]
