"""How much is left to do, found from the goal towards the start, against looking at every situation."""

from __future__ import annotations

import heapq
import random
from collections import defaultdict

import pytest

from shardwise.planner.links import Links
from shardwise.planner.remaining import Remaining
from shardwise.planner.route import problem_of
from shardwise.planner.situations import Situations
from shardwise.types.placement import P, R

from .layouts import all_types, axes_of

SIZES = (2, 4, 3)
SHAPES = [(24, 48), (5, 30, 7), (3, 10)]
LINKS = {
    "alike": lambda axes: Links(),
    "different": lambda axes: Links.of({axes[0]: 25e9, axes[1]: 400e9}),
    "messages": lambda axes: Links.of({axes[2]: 10e9}, dict.fromkeys(axes[:2], 1e-6)),
}


def problems(shape, links):
    axes = axes_of(SIZES)
    types = all_types(axes, len(shape), letters=(R, P))
    chance = random.Random(f"{shape} {links}")
    for src, dst in (chance.sample(types, 2) for _ in range(25)):
        yield problem_of(shape, "float32", src, dst, LINKS[links](axes)), chance


def steps_of(situations):
    """What steps cost exactly, by where they lead from and where to, of all situations that lead to the end."""
    seen, found, costs = {situations.end}, [situations.end], {}
    for at in found:
        for least, before, exactly in situations.before(at):
            cost = least if exactly is None else exactly()
            assert cost is None or cost >= least, (situations.problem, before, at)
            if cost is not None:
                costs[before, at] = min(cost, costs.get((before, at), cost))
                if before not in seen:
                    seen.add(before)
                    found.append(before)
    return costs


def distances(costs, start):
    """The least cost of a way from ``start`` to every situation (Dijkstra, 1959)."""
    ahead = defaultdict(list)
    for (before, after), cost in costs.items():
        ahead[before].append((after, cost))
    done, queue = {}, [(0, start)]
    while queue:
        spent, at = heapq.heappop(queue)
        if at not in done:
            done[at] = spent
            for after, cost in ahead[at]:
                heapq.heappush(queue, (spent + cost, after))
    return done


def start_of(situations):
    pending, entries = situations.problem.start
    return situations.of(situations.problem.cuts.number(entries), pending)[0]


@pytest.mark.parametrize("links", LINKS)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_what_is_left_is_the_cheapest_way_and_what_is_said_before_looking_is_no_more(shape, links):
    said = set()
    for problem, chance in problems(shape, links):
        situations = Situations(problem)
        left = Remaining(problem, situations)
        costs = steps_of(situations)
        wanted = distances({(after, before): cost for (before, after), cost in costs.items()}, situations.end)
        asked = sorted(wanted)
        chance.shuffle(asked)
        for situation in asked:
            at_least = left.at_least(situation)
            assert at_least <= wanted[situation], (problem, situation)
            assert left.least(situation) == wanted[situation], (problem, situation)
            said.add(at_least == wanted[situation])
    assert said == {True, False}


@pytest.mark.parametrize("links", LINKS)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_no_way_from_the_start_costs_less_than_what_has_to_be_passed_on_it(shape, links):
    some = 0
    for problem, _ in problems(shape, links):
        situations = Situations(problem)
        passed = Remaining(problem, situations).passed
        costs = steps_of(situations)
        for situation, cost in distances(costs, start_of(situations)).items():
            assert passed.until(situation) <= cost, (problem, situation)
            some += passed.until(situation) > 0
        for (before, after), cost in costs.items():  # so a situation is settled once
            assert passed.until(after) <= passed.until(before) + cost, (problem, before, after)
    assert some > 100
