"""The planner against a search that looks at everything, and what it says of a move that cannot be made."""

from __future__ import annotations

import math
import random

import pytest
import torch
from hypothesis import settings

from shardwise.diagnostics.errors import SpmdValueError
from shardwise.mesh.axis import MeshAxis
from shardwise.mesh.current import set_current_mesh
from shardwise.planner.cuts import forget
from shardwise.planner.links import Links
from shardwise.planner.moves import Fans, moves
from shardwise.planner.route import plan, problem_of
from shardwise.planner.shortest import shortest
from shardwise.types.placement import I, P, R, V
from shardwise.types.spec import PartitionSpec, make_entry, spec_of
from shardwise.types.tensor_type import TensorType

from .exhaustive import Machine
from .layouts import all_types, axes_of, coordinates, own_part

A = MeshAxis.of(2, 1)
EVERYTHING = settings().max_examples > 500
"""Whether all pairs are compared, as in `make nightly`."""
SHAPES = {
    (2, 2): [(24,), (5, 6)],
    (4, 2): [(24, 24), (4, 6)],
    (2, 2, 2): [(24,), (24, 24)],
    (2, 3, 2): [(5,), (24, 24), (5, 9)],
}
MOST_LOOKED_AT = 60
"""Layouts, on a way over four axes of which two are slow."""
MOST_CUTS = 220
"""Layouts that are thought of on such a way."""
MOST_OF_MANY_AXES = 300
"""Layouts that are looked at where sums are pending over six axes that are to cut eight dims."""


SPEEDS = {
    "alike": lambda axes: Links(),
    "different": lambda axes: Links.of({axes[0]: 25e9, axes[1]: 400e9}),
    "messages over one": lambda axes: Links.of({axes[0]: 25e9, axes[1]: 400e9}, {axes[0]: 1e-6}),
    "messages over all": lambda axes: Links.of({axes[-1]: 10e9}, dict.fromkeys(axes, 1e-7)),
    "messages where bytes are fast": lambda axes: Links.of({axes[0]: 25e9}, {axes[0]: 1e-10, axes[1]: 1e-9}),
}


def looked_at(monkeypatch):
    """The layouts that searches look at from now on."""
    looked, of = [], Fans.of
    monkeypatch.setattr(Fans, "of", lambda *asked: looked.append(asked) or of(*asked))
    return looked


def numbers(bits):
    return frozenset(at for at in range(bits.bit_length()) if bits >> at & 1)


def machine_of(shape, axes, links, joins):
    weights, latencies = links.integers(axes)
    sizes = tuple(axis.size() for axis in axes)
    return Machine(sizes, tuple(zip(latencies, weights, strict=True)), shape, joins=joins)


def compare(machine, axes, types, src, links):
    """Every move from ``src``: what the planner takes costs what the search over everything says."""
    shape, joins, tables = machine.shape, machine.joins, {}
    for dst in types:
        problem = problem_of(shape, "float32", src, dst, links, None if joins else frozenset())
        key = numbers(problem.fixed), numbers(problem.made)
        if key not in tables:
            tables[key] = machine.costs((numbers(problem.start[0]), problem.start[1]), *key)
        path = shortest(problem)
        assert path is not None, (src, dst)
        collectives = sum(move.collective for move in path)
        spent = sum(move.time for move in path), collectives, len(path) - collectives
        assert spent == tables[key][numbers(problem.goal[0]), problem.goal[1]], (src, dst, path)


@pytest.mark.slow_but_one_in(4)
@pytest.mark.one_in(2)
@pytest.mark.parametrize("speeds", SPEEDS)
@pytest.mark.parametrize("joins", [True, False], ids=["any axes together", "one axis at a time"])
@pytest.mark.parametrize(
    ("sizes", "shape"), [(sizes, shape) for sizes, shapes in SHAPES.items() for shape in shapes], ids=str
)
def test_the_planner_finds_what_looking_at_everything_finds(sizes, shape, joins, speeds):
    axes = axes_of(sizes)
    types = all_types(axes, len(shape), letters=(R, P))  # to the search I is R
    links = SPEEDS[speeds](axes)
    machine = machine_of(shape, axes, links, joins)
    chance = random.Random(f"{sizes} {shape} {joins} {speeds}")
    for src in types if EVERYTHING else chance.sample(types, 1):
        compare(machine, axes, types, src, links)


@pytest.mark.parametrize("shape", [(5, 6), (3, 7)], ids=str)
def test_uneven_shards_over_unequal_links_from_every_type(shape):
    axes = axes_of((2, 2))
    types = all_types(axes, len(shape), letters=(R, P))
    links = SPEEDS["different"](axes)
    machine = machine_of(shape, axes, links, joins=True)
    for src in types:
        compare(machine, axes, types, src, links)


@pytest.mark.parametrize(("sizes", "shape"), [((2, 3), (5, 7)), ((3, 2), (4, 4)), ((2, 2, 2), (9, 5))], ids=str)
def test_a_step_costs_what_any_rank_receives_in_it_or_more(sizes, shape):
    axes = axes_of(sizes)
    marks = torch.arange(math.prod(shape)).reshape(shape)
    for type in all_types(axes, len(shape), letters=(R,)):
        problem = problem_of(shape, "float32", type, TensorType.of(dict.fromkeys(axes, R)))
        for move in moves(problem, problem.start):
            entries = (make_entry([axes[at] for at in entry]) for entry in move.after[1])
            after = TensorType.of(dict.fromkeys(axes, V), spec_of(entries))
            for place in coordinates(axes):
                has, needs = (set(own_part(marks, one, place).flatten().tolist()) for one in (type, after))
                assert len(needs - has) <= move.elements, (type, move, place)


def test_many_axes_on_many_dims_have_a_plan_without_looking_at_every_arrangement():
    axes = axes_of((2,) * 6)
    letters = dict.fromkeys(axes, V)
    src, dst = TensorType.of(letters, PartitionSpec(*axes)), TensorType.of(letters, PartitionSpec(*reversed(axes)))
    assert [step.op for step in plan((8,) * 6, "float32", src, dst).steps] == ["all_to_all"]
    pending = TensorType.of(
        {axis: P if at > 3 else V for at, axis in enumerate(axes)}, PartitionSpec(tuple(axes[:4]), None)
    )
    a, b, c, d, e, f = axes
    goal = TensorType.of(letters, PartitionSpec((f, a), (c, b, d, e)))
    steps = plan((64, 64), "float32", pending, goal).steps
    assert [step.op for step in steps] == ["reduce_scatter", "all_to_all"]
    assert steps[-1].dst == goal


def test_a_limit_on_memory_is_kept_on_the_way_or_refused():
    dp, tp = axes_of((4, 4))
    src = TensorType.of({dp: V, tp: V}, PartitionSpec((dp, tp), None))
    dst = TensorType.of({dp: V, tp: V}, PartitionSpec((tp, dp), None))
    held = 64 * 64 * 4 // 16
    assert plan((64, 64), "float32", src, dst, max_bytes=held).largest * 4 == held  # one exchange over both axes
    alone = frozenset()
    assert plan((64, 64), "float32", src, dst, together=alone, max_bytes=4 * held).largest * 4 <= 4 * held
    with pytest.raises(ValueError, match=f"no local tensor above max_bytes={held}"):
        plan((64, 64), "float32", src, dst, together=alone, max_bytes=held)


def test_what_does_not_fit_at_either_end_is_refused_with_its_size():
    dp = MeshAxis.of(4, 1)
    src, dst = TensorType.of({dp: V}, PartitionSpec(dp)), TensorType.of({dp: R})
    with pytest.raises(ValueError, match=r"max_bytes=101 cannot be kept: after the move a rank holds .*, 256 bytes"):
        plan((64,), "float32", src, dst, max_bytes=101)  # no multiple of an element


@pytest.mark.parametrize(
    ("src", "dst", "said"),
    [({0: V}, {0: R}, "does not say what the whole is"), ({0: R}, {0: P("max")}, "no step makes another pending")],
)
def test_what_no_step_makes_is_refused(src, dst, said):
    axis = MeshAxis.of(4, 1)
    with pytest.raises(ValueError, match=said):
        plan((8,), "float32", TensorType.of({axis: src[0]}), TensorType.of({axis: dst[0]}))


def test_types_over_other_axes_are_refused_by_name_and_flattened_ones_are_taken_apart():
    dp, tp = axes_of((2, 4))
    with pytest.raises(ValueError, match="do not speak of the same axes"):
        plan((8,), "float32", TensorType.of({dp: R}), TensorType.of({dp: R, tp: R}))
    whole = MeshAxis.of(8, 1)
    steps = plan((8,), "float32", TensorType.of({whole: P}), TensorType.of({dp: R, tp: R})).steps
    assert [step.op for step in steps] == ["all_reduce"]


def test_one_of_r_and_i_is_settled_where_the_gradient_costs_least():
    dp, tp = axes_of((2, 4))
    steps = plan((8, 8), "float32", TensorType.of({dp: P, tp: P}), TensorType.of({dp: R, tp: I})).steps
    assert [(step.op, step.dst.get(dp), step.dst.get(tp)) for step in steps] == [
        ("all_reduce", I, I),
        ("convert", R, I),
    ]


def test_a_pending_average_is_a_sum_and_one_multiplication():
    dp = MeshAxis.of(4, 1)
    steps = plan((8,), "float32", TensorType.of({dp: P}, scale={dp: 1}), TensorType.of({dp: R})).steps
    assert [(step.op, step.factor) for step in steps] == [("scale", 0.25), ("all_reduce", 1.0)]
    assert [step.src.exponent(dp) for step in steps] == [1, 0], "a step of scale changes the type, as any other"


@pytest.mark.parametrize(
    ("dtype", "src", "said"),
    [
        ("bool", TensorType.of({A: P}), "the sum of truth values is none, so nothing of dtype bool is P over"),
        ("bool", TensorType.of({A: P}, scale={A: 1}), "is P(avg) over"),
        ("bool", TensorType.of({A: R}, scale={A: 1}), "numbers of dtype bool cannot be multiplied by 0.5"),
        ("int64", TensorType.of({A: P}, scale={A: 1}), "is 2 times {dp: R}, and numbers of dtype int64 cannot be"),
        ("uint8", TensorType.of({A: R}, scale={A: 2}), "is 4 times {dp: R}, and numbers of dtype uint8 cannot be"),
        ("complex64", TensorType.of({A: P("max")}), "complex numbers have no order, so nothing of dtype complex64 is"),
    ],
    ids=str,
)
def test_elements_that_cannot_be_added_ordered_or_divided_take_no_such_steps(dtype, src, said):
    dst = TensorType.of({A: R})
    with set_current_mesh({"dp": A}), pytest.raises(SpmdValueError) as refused:
        plan((8,), dtype, src, dst)
    assert said in refused.value.message
    assert refused.value.finding.code == "SW202"


@pytest.mark.parametrize(
    ("dtype", "src"),
    [
        ("bool", TensorType.of({A: P("max")})),
        ("uint8", TensorType.of({A: P})),
        ("int64", TensorType.of({A: R}, scale={A: -1})),
        ("float32", TensorType.of({A: P}, scale={A: 1})),
        ("complex64", TensorType.of({A: P}, scale={A: 1})),
    ],
    ids=str,
)
def test_elements_that_can_take_the_steps_do(dtype, src):
    assert plan((8,), dtype, src, TensorType.of({A: R})).steps


@pytest.mark.parametrize(
    ("shape", "sizes"),
    [((64, 64), (2, 4, 2, 4)), ((30, 50), (2, 4, 2, 4)), ((7, 13, 250, 5), (2, 4, 4, 8))],
    ids=["even", "uneven", "fewer elements than ranks"],
)
def test_the_search_looks_at_few_layouts_whatever_is_pending(shape, sizes, monkeypatch):
    axes = axes_of(sizes)
    types = all_types(axes, len(shape), letters=(R, P))
    links = Links.of({axes[0]: 25e9, axes[1]: 25e9, axes[2]: 400e9, axes[3]: 400e9})
    looked = looked_at(monkeypatch)
    chance = random.Random(0)
    for src, dst in (chance.sample(types, 2) for _ in range(30)):
        looked.clear()
        forget()
        problem = problem_of(shape, "float32", src, dst, links)
        shortest(problem)
        assert len(looked) < MOST_LOOKED_AT, (src, dst)
        assert len(problem.cuts.entries) < MOST_CUTS, (src, dst)


def test_an_axis_that_ends_pending_is_known_to_be_where_it_was_until_it_is_moved(monkeypatch):
    a, b, c, d = axes_of((2, 4, 4, 8))
    links = Links.of({a: 50e9, b: 50e9, c: 450e9, d: 450e9})
    sharded = TensorType.of({a: V, b: V, c: R, d: V}, PartitionSpec(d, (a, b), None, None))
    summed = TensorType.of({a: R, b: P, c: R, d: V}, PartitionSpec(None, None, None, d))
    looked = looked_at(monkeypatch)
    shortest(problem_of((2500, 777, 4096, 50257), "float32", sharded, summed, links))
    assert len(looked) < 20  # 32, if it is not known that a cannot be gathered while b cuts inside it


@pytest.mark.parametrize(
    "spec", [lambda a, *rest: (a, *rest, None, None), lambda *axes: (None, axes[::2], axes[1::2], *(None,) * 5)]
)
def test_sums_over_many_axes_are_scattered_to_few_of_many_dims(spec, monkeypatch):
    axes = axes_of((2,) * 6)
    pending = TensorType.of(
        {axis: V if at == 1 else P for at, axis in enumerate(axes)}, PartitionSpec(*[None] * 7, axes[1])
    )
    cut = TensorType.of(dict.fromkeys(axes, V), PartitionSpec(*spec(*axes)))
    links = Links.of({axes[0]: 25e9, axes[1]: 100e9, axes[2]: 400e9})
    looked = looked_at(monkeypatch)
    path = shortest(problem_of((64, 77, 100, 64, 13, 100, 13, 77), "float32", pending, cut, links))
    assert {move.op for move in path} == {"reduce_scatter", "all_to_all"}
    assert len(looked) < MOST_OF_MANY_AXES
