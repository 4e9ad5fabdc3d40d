"""How much is left to do: what every way from a layout to the goal of a move costs at least, for the search.

The bound is the cheapest way between the situations of a simpler world (``situations.py``). These few are looked at
from the goal backwards, those first that can be on a cheap way from the start, and no further than they are asked for:
until then what is left of a way costs no less than the cheapest that is still open, but for what lies before it.
Source: Culberson and Schaeffer 1998 (bounds from a simpler world); Hart, Nilsson and Raphael 1968 (A*); Silver 2005
(its search backwards, resumed when another state is asked for).
"""

from __future__ import annotations

import heapq

from .cuts import subsets
from .problem import Problem
from .situations import Exactly, Situation, Situations


class Remaining:
    """Least time, collectives and local steps from a situation to the goal, as the digits of one number."""

    def __init__(self, problem: Problem, situations: Situations) -> None:
        self.situations = situations
        self.passed = Passed(problem, situations)
        self.settled: dict[Situation, int] = {}
        self.found: dict[Situation, int] = {situations.end: 0}
        self.order = 0
        self.queue: list[tuple[int, int, Situation, int, Exactly | None]] = [(0, 0, situations.end, 0, None)]

    def at_least(self, situation: Situation) -> float:
        """No more than what is left there, found without looking further."""
        cost = self.settled.get(situation)
        if cost is None:
            return self.queue[0][0] - self.passed.until(situation) if self.queue else float("inf")
        return cost

    def least(self, situation: Situation) -> float:
        """The cost of the cheapest way from there."""
        cost = self.settled.get(situation)
        return self._settle(situation) if cost is None else cost

    def _settle(self, situation: Situation) -> float:
        """What a step costs exactly is asked when it could be the next."""
        settled, queue, found, passed = self.settled, self.queue, self.found, self.passed
        while situation not in settled:
            if not queue:
                return float("inf")
            bound, _, at, spent, exactly = heapq.heappop(queue)
            if at in settled:
                continue
            if exactly is not None:
                cost = exactly()
                if cost is None or ((known := found.get(at)) is not None and known <= spent + cost):
                    continue
                found[at] = spent = spent + cost
                if spent + passed.until(at) > bound:
                    self.order += 1
                    heapq.heappush(queue, (spent + passed.until(at), self.order, at, spent, None))
                    continue
            settled[at] = spent
            for cost, before, exactly in self.situations.before(at):
                if before not in settled and (now := spent + cost) < found.get(before, now + 1):
                    bound = now + passed.until(before)
                    self.order += 1
                    if exactly is None:
                        found[before] = now
                        heapq.heappush(queue, (bound, self.order, before, now, None))
                    else:
                        heapq.heappush(queue, (bound, self.order, before, spent, exactly))
        return settled[situation]


class Passed(dict[int, int]):
    """What any way from the start has cost at least, by what is left of it: axes to be summed, and to leave their dims.

    It is the cheapest way in a world that is simpler still, in which a rank holds as little as if all other axes cut.
    """

    def __init__(self, problem: Problem, situations: Situations) -> None:
        self.problem, self.situations = problem, situations
        self.summed, self.leaving, self.off = situations.summed, situations.leaving, 2 * situations.width
        super().__init__({self.summed | self.leaving: 0})

    def until(self, situation: Situation) -> int:
        """What a way from the start to a situation costs at least."""
        return self[self.summed & situation | self.leaving & situation >> self.off]

    def __missing__(self, left: int) -> int:
        groups, holdings = self.problem.groups, self.problem.holdings
        held = -(-holdings.whole // holdings.ranks[self.situations.moved & ~(left & self.summed)])
        found = [
            self[left | axes] + groups[axes].price((groups[axes].ranks - 1) * held)
            for axes in subsets(self.summed & ~left)
        ]
        found += [
            self[left | axes] + groups[axes].price(held - held // groups[axes].ranks)
            for axes in subsets(self.leaving & ~left)
        ]
        least = self[left] = min(found)
        return least
