"""The planner against a search that looks at everything, and what it says of a move that cannot be made."""

from __future__ import annotations

import pytest

from shardwise.mesh.axis import MeshAxis
from shardwise.planner.links import Links
from shardwise.planner.moves import Problem, moves
from shardwise.planner.route import plan, problem_of
from shardwise.planner.shortest import shortest
from shardwise.types.placement import I, P, R, V
from shardwise.types.spec import PartitionSpec
from shardwise.types.tensor_type import TensorType

from .layouts import all_types, axes_of

MESHES = [(2, 2), (4, 2), (2, 2, 2), (2, 3, 2)]
SHAPES = [(24,), (5,), (24, 24), (4, 6)]


def cheapest_of_all(problem: Problem) -> tuple[int, int, int] | None:
    """The least cost by relaxing every step of every layout until nothing changes."""
    spent = {problem.start: (0, 0, 0)}
    front = {problem.start}
    while front:
        reached = set()
        for state in front:
            time, collectives, steps = spent[state]
            for move in moves(problem, state, problem.dims):
                now = (time + move.weight, collectives + move.collective, steps + 1 - move.collective)
                if move.after not in spent or now < spent[move.after]:
                    spent[move.after] = now
                    reached.add(move.after)
        front = reached
    return spent.get(problem.goal)


def spent_on(path):
    return (
        sum(move.weight for move in path),
        sum(move.collective for move in path),
        sum(1 - move.collective for move in path),
    )


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("sizes", MESHES, ids=str)
def test_the_planner_finds_what_looking_at_everything_finds(sizes, shape):
    axes = axes_of(sizes)
    types = all_types(axes, len(shape), letters=(R, P))  # to the search I is R
    step = 1 if len(types) ** 2 < 1500 else 53  # every pair of the small ones, and every 53rd of the others
    pairs = [(src, dst) for src in types for dst in types][::step]
    links = [Links(), Links.of({axes[0]: 25e9, axes[1]: 400e9}, {axes[0]: 1e-6})]
    for at, (src, dst) in enumerate(pairs):
        together = None if at % 3 else frozenset()
        problem = problem_of(shape, "float32", src, dst, links[at % 2], together)
        path = shortest(problem)
        assert path is not None, (src, dst)
        assert spent_on(path) == cheapest_of_all(problem), (src, dst, together, at % 2)
    assert len(pairs) >= 100


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
    with pytest.raises(ValueError, match=r"after the move a rank holds .*, 256 bytes"):
        plan((64,), "float32", src, dst, max_bytes=100)


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
