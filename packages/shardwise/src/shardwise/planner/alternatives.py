"""Other ways to the same type, for comparison: what each is, and why the cheapest plan was taken in its place."""

from __future__ import annotations

from dataclasses import replace

from shardwise.mesh.axis import MeshAxis

from .links import UNIFORM, Links
from .moves import Move, moves
from .plans import Plan, RejectedPlan
from .problem import Problem
from .route import problem_of, steps_of
from .shortest import shortest


def alternatives(
    chosen: Plan,
    *,
    links: Links = UNIFORM,
    together: frozenset[MeshAxis] | None = None,
    max_bytes: int | None = None,
) -> tuple[RejectedPlan, ...]:
    """The plans that were not taken, each different from ``chosen`` and from the others.

    Example:
        >>> dp, tp = MeshAxis.of(2, 4), MeshAxis.of(4, 1)
        >>> src = TensorType.of({dp: V, tp: V}, PartitionSpec((dp, tp)))
        >>> dst = TensorType.of({dp: V, tp: V}, PartitionSpec((tp, dp)))
        >>> from shardwise.planner.route import plan
        >>> for one in alternatives(plan((64,), "float32", src, dst)):
        ...     print(one.name, "-", one.why)
        reduce and gather everything, then cut - 7.0 times the bytes
    """
    problem = problem_of(chosen.shape, chosen.dtype, chosen.src, chosen.dst, links, together)
    ways = [
        ("reduce and gather everything, then cut", _gathered(problem)),
        ("one axis after another", shortest(replace(problem, together=frozenset()))),
        ("without axes that only share the work", shortest(replace(problem, fixed=problem.fixed | _idle(problem)))),
    ]
    found: dict[tuple[object, ...], RejectedPlan] = {_shown(chosen): RejectedPlan("", "")}
    for name, path in ways:
        if path is not None:
            other = Plan(
                chosen.shape, chosen.dtype, chosen.src, chosen.dst, steps_of(problem, chosen.src, chosen.dst, path)
            )
            found.setdefault(_shown(other), RejectedPlan(name, _why(chosen, other, problem.itemsize, max_bytes), other))
    return tuple(found.values())[1:]


def _shown(plan: Plan) -> tuple[object, ...]:
    return tuple((step.op, step.axes, step.dst) for step in plan.steps)


def _why(chosen: Plan, other: Plan, itemsize: int, max_bytes: int | None) -> str:
    if max_bytes is not None and other.largest * itemsize > max_bytes:
        return f"a rank would hold {other.largest * itemsize} bytes at once"
    if other.time > chosen.time and other.bytes > chosen.bytes:
        return f"{other.bytes / chosen.bytes:.1f} times the bytes" if chosen.bytes else f"{other.bytes} bytes more"
    if other.time > chosen.time:
        return f"{other.time / chosen.time:.1f} times as long, over the slower axis" if chosen.time else "takes longer"
    more = len(other.collectives) - len(chosen.collectives)
    return f"{more} collective{'s' if more > 1 else ''} more for as many bytes" if more > 0 else "more local steps"


def _idle(problem: Problem) -> int:
    """The axes over which nothing changes: equal tensors before and after."""
    used = problem.start[0] | problem.goal[0] | problem.fixed
    for entries in (problem.start[1], problem.goal[1]):
        for entry in entries:
            for axis in entry:
                used |= 1 << axis
    return ~used & ((1 << len(problem.sizes)) - 1)


def _gathered(problem: Problem) -> list[Move] | None:
    """Reduce and gather all that has to change, then cut as the goal is cut."""
    state, path, goal = problem.start, list[Move](), problem.goal
    if problem.made:
        return None
    while state != goal:
        found = list(moves(problem, state))
        ahead = [move for move in found if _leads_on(move, state, problem)]
        if not ahead:
            return None
        path.append(max(ahead, key=lambda move: (move.collective, len(move.axes))))
        state = path[-1].after
    return path


def _leads_on(move: Move, state: tuple[int, tuple[tuple[int, ...], ...]], problem: Problem) -> bool:
    if move.op == "all_gather":
        return any(
            entry != after and entry != wanted[: len(entry)]
            for entry, after, wanted in zip(state[1], move.after[1], problem.goal[1], strict=True)
        )
    if move.op == "all_reduce":
        return True
    waiting = state[0] & ~problem.goal[0]
    return (
        move.op == "convert"
        and not waiting
        and all(entry == wanted[: len(entry)] for entry, wanted in zip(move.after[1], problem.goal[1], strict=True))
    )
