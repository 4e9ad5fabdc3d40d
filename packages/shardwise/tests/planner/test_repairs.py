"""Repairs: what is offered is admitted by propagation, the cheapest first, and nothing else is offered."""

from __future__ import annotations

import itertools

import pytest

from shardwise.op_rules.propagation.dim_labels import Call, Shape
from shardwise.op_rules.propagation.einsum_calculus import Einsum, Placing
from shardwise.op_rules.propagation.local import Given, Refusal, local_rules
from shardwise.op_rules.propagation.sharded import Sharded
from shardwise.op_rules.registry import lookup
from shardwise.planner.cost import Interconnect
from shardwise.planner.links import DEFAULT
from shardwise.planner.repairs import einsum_repairs, local_repairs, sharding_repairs
from shardwise.planner.search import Step, cheapest, combinations, search, step
from shardwise.types.placement import I, P, PerMeshAxisLocalSpmdType, R, S, Shard, V

KINDS = (R, I, V, P)


def givens(op, *places):
    parameters = [name for name in lookup(op).parameters if name in ("input", "other")]
    return [Given(name, place, grad=True) for name, place in zip(parameters, places, strict=False)]


@pytest.mark.parametrize("op", ["add", "mul", "gelu", "div"])
def test_after_every_local_repair_the_rule_admits_the_call(op):
    offered = 0
    for places in itertools.product(KINDS, repeat=2):
        operands = givens(op, *places)
        if not isinstance(local_rules(lookup(op), operands), Refusal):
            continue
        for repair in local_repairs(lookup(op), operands):
            offered += 1
            moved = {one.position: one.dst for one in repair.steps}
            assert all(operands[one.position].placement is one.src for one in repair.steps)
            after = [Given(o.param, moved.get(at, o.placement), grad=True) for at, o in enumerate(operands)]
            result = local_rules(lookup(op), after)
            assert not isinstance(result, Refusal)
            assert result[0] is repair.result
    assert offered > 0


def test_what_only_the_author_can_know_is_never_offered():
    for op in ("add", "mul", "gelu"):
        for places in itertools.product(KINDS, repeat=2):
            steps = [one for repair in local_repairs(lookup(op), givens(op, *places)) for one in repair.steps]
            assert not {(one.src, one.dst) for one in steps} & {(R, I), (V, P), (V, R)}


def test_a_sum_that_the_others_complete_is_not_made_pending():
    assert P not in {repair.result for repair in local_repairs(lookup("add"), givens("add", R, I))}


def matmul(first, second, one, other, size=2):
    call = Call((Shape(first, "input"), Shape(second, "other")), {})
    return sharding_repairs(lookup("matmul"), call, [one, other], size)


def test_the_cheapest_sharding_repair_is_first():
    # [4, 8 cut into 4] @ [8, 6 cut into 3]: the operands are sharded on dims that are not the same label.
    found = matmul((4, 4), (8, 3), Sharded(V, 1), Sharded(V, 1))
    assert found
    assert [repair.cost.bytes for repair in found] == sorted(repair.cost.bytes for repair in found)
    first = found[0]
    assert first.cost.elements == sum(one.cost.elements for one in first.steps)
    assert {one.op for repair in found for one in repair.steps} <= {"all_gather", "all_to_all", "convert"}


def test_a_whole_operand_is_cut_for_nothing():
    # x [4, 4 of 8] @ w [8, 3]: w is whole, and cutting its rows costs nothing.
    first = matmul((4, 4), (8, 3), Sharded(V, 1), Sharded(R))[0]
    assert [(one.position, one.op, one.src, one.dst) for one in first.steps] == [(1, "convert", R, S(0))]
    assert first.cost.bytes == 0
    assert first.result is P


def test_where_messages_take_long_one_gather_is_cheaper_than_two_exchanges():
    call = Call((Shape((8, 8), "input"), Shape((8, 8), "other")), {})
    found = [
        sharding_repairs(lookup("matmul"), call, [Sharded(V, 0), Sharded(V, 1)], 4, link=link)[0]
        for link in (DEFAULT, Interconnect(1e-3, 100e9))
    ]
    assert [[one.op for one in repair.steps] for repair in found] == [["all_to_all", "all_to_all"], ["all_gather"]]


def test_uneven_shards_are_gathered_and_not_moved():
    found = matmul((4, 4), (8, 4), Sharded(V, 1, uneven=True), Sharded(V, 1))
    assert found
    assert {one.op for repair in found for one in repair.steps if one.position == 0} == {"all_gather"}


def test_a_step_knows_the_cost_of_its_gradient():
    gathered = step(0, S(0), R, 10, 4, "float32")
    assert (gathered.op, gathered.cost.elements) == ("all_gather", 30)
    assert gathered.gradient.elements == 30  # a reduce-scatter of all 40
    summed = step(0, P, I, 10, 4)
    assert (summed.op, summed.gradient.bytes) == ("all_reduce", 0)
    assert step(0, I, R, 10, 4).gradient.elements == 2 * 3 * 3


def test_the_search_tries_single_steps_before_pairs_and_keeps_what_is_admitted():
    one, other = Step(0, "convert", I, R), Step(1, "convert", I, R)
    tried = list(combinations([[one], [other]], 2))
    assert tried == [(one,), (other,), (one, other)]
    found = cheapest(search(tried, lambda steps: len(steps) if other in steps else None), DEFAULT)
    assert [(repair.steps, repair.result) for repair in found] == [((other,), 1), ((one, other), 2)]


EINSUMS = ("sbi,io->sbo", "bhqd,bhkd->bhqk", "ij,jk,kl->il", "i,i->")


def einsum_ways(equation, *placements):
    einsum = Einsum(equation)
    placings = [Placing(V, one) if one.islower() else Placing(PerMeshAxisLocalSpmdType(one)) for one in placements]
    return einsum, placings, einsum_repairs(einsum.operands, einsum.result, placings)


@pytest.mark.slow_but_one_in(4)
@pytest.mark.parametrize("equation", EINSUMS)
def test_every_illegal_einsum_has_a_way_out_and_every_way_is_legal(equation):
    terms = equation.partition("->")[0].split(",")
    illegal = 0
    for placements in itertools.product(*([*term, "R", "I", "P"] for term in terms)):
        einsum, placings, found = einsum_ways(equation, *placements)
        if not einsum.judge("tp", placings).refused:
            continue
        illegal += 1
        assert found, placements
        for repair in found:
            after = list(placings)
            for one in repair.steps:
                labels = einsum.operands[one.position]
                after[one.position] = (
                    Placing(V, labels[one.dst.dim]) if isinstance(one.dst, Shard) else Placing(one.dst)
                )
            verdict = einsum.judge("tp", after)
            assert (verdict.refused, verdict.forward[-1].placing) == ("", repair.result)
    assert illegal > 0


def test_what_costs_nothing_comes_first_in_an_einsum_too():
    (first, *_) = einsum_ways("bi,io->bo", "i", "R")[2]
    assert [(one.position, one.op, one.dst) for one in first.steps] == [(1, "convert", S(0))]
    assert first.result == Placing(P)
    (first, *_) = einsum_ways("bi,io->bo", "b", "I")[2]
    assert [(one.position, one.op, one.dst) for one in first.steps] == [(1, "convert", R)]
