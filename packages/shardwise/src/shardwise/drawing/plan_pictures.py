"""A plan drawn: who holds what before and after every step, its bytes and its time, and who needs what of whom."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from shardwise.diagnostics.printing.quantities import byte_count, duration
from shardwise.mesh.index_map import IndexMap
from shardwise.mesh.names import NamedAxis
from shardwise.planner.plans import Plan, PlanStep
from shardwise.types.notation import TypedShape
from shardwise.types.tensor_type import TensorType

from .model import Arrow, Block, Look, Matrix, Picture, Tile, Words
from .model import Sequence as Blocks
from .nesting import Dim, Place, indices, matrix_of_matrices
from .shards import blocks_of
from .spread_tensor import Coordinates, SpreadTensor

LIMIT = 4
"""A plan has several tensors, so of each there is less: a dim of more indices is drawn by its shards."""
MOST_RANKS = 6


def plan_picture(plan: Plan, mesh: Sequence[NamedAxis], *, limit: int = LIMIT) -> Picture:
    """The tensor before the first step and after each one; arrows carry the step, its bytes and its time."""
    limit = min(limit, LIMIT)
    blocks: list[Block] = [_stage(plan, plan.src, mesh, limit)]
    for number, step in enumerate(plan.steps, start=1):
        blocks.append(Arrow((f"{number}. {step_line(step)}", *_costs(step)), across=False))
        blocks.append(_stage(plan, step.dst, mesh, limit))
        moved = _moved(plan, step, mesh)
        if moved is not None:
            blocks.append(moved)
    start, end = (str(TypedShape(plan.dtype, plan.shape, one)) for one in (plan.src, plan.dst))
    told = "; ".join(f"{step_line(step)}, {', '.join(_costs(step))}" for step in plan.steps) or "nothing to do"
    return Picture(
        f"{start} -> {end}",
        f"A plan in {len(plan.steps)} steps from {start} to {end}: {told}.",
        Blocks(tuple(blocks), across=False),
        (f"one rank receives {byte_count(plan.bytes)}, in {duration(plan.time)} by the cost model",),
    )


def step_line(step: PlanStep) -> str:
    """``all_gather over tp, dim 1``."""
    over = f" over {', '.join(map(repr, step.axes))}" if step.axes else ""
    dim = "" if step.dim is None else f", dim {step.dim}"
    factor = "" if step.factor == 1 else f" by {step.factor:g}"
    return f"{step.op}{factor}{over}{dim}"


def _costs(step: PlanStep) -> tuple[str, ...]:
    if not step.is_collective:
        return ("local",)
    return (f"receives {byte_count(step.bytes)}, {duration(step.time)}",)


def _stage(plan: Plan, type: TensorType, mesh: Sequence[NamedAxis], limit: int) -> Block:
    typed = TypedShape(plan.dtype, plan.shape, type)
    block = blocks_of(SpreadTensor(typed, mesh), limit=limit)
    return Blocks((Words((str(typed),), Look.TITLE), block), across=False)


def _moved(plan: Plan, step: PlanStep, mesh: Sequence[NamedAxis]) -> Block | None:
    """From each rank of one fiber to each other: how many elements of what the one holds the other needs afterwards."""
    if not step.is_collective or not step.axes:
        return None
    before, after = (SpreadTensor(TypedShape(plan.dtype, plan.shape, one), mesh) for one in (step.src, step.dst))
    if any(axis not in placed.axes for axis in step.axes for placed in (before, after)):
        return None  # a type that sees other axes
    axes = [next(one for one in before.axes if one == axis) for axis in step.axes]
    shown = indices(math.prod(axis.size() for axis in axes), MOST_RANKS)
    adds = step.op in ("all_reduce", "reduce_scatter")

    def tile(place: Place) -> Block:
        source, target = (_along(axes, part.start) for part in place)
        held, own, needed = before.owned(source), before.owned(target), after.owned(target)
        count = _common(held, needed) - (0 if adds else _common(held, needed, own))
        is_still = source == target or not count
        return Tile(("own" if source == target else str(count),), look=Look.FAINT if is_still else Look.PLAIN)

    table = matrix_of_matrices([Dim("holds", shown), Dim("needs", shown)], tile)
    names = tuple("…" if part.is_left_out else f"rank {before.rank(_along(axes, part.start))}" for part in shown)
    assert isinstance(table, Matrix), "two dims are one matrix"
    table = replace(table, across=replace(table.across, ticks=names), down=replace(table.down, ticks=names))
    return Blocks(
        (Words(("elements that one rank holds and another needs, in one fiber",), Look.TITLE), table), across=False
    )


def _along(axes: Sequence[NamedAxis], number: int) -> Coordinates:
    """The coordinates of a place on all of ``axes``, the last counted fastest, at the origin of all others."""
    digits = IndexMap.compact([axis.size() for axis in axes]).digits(number)
    return dict(zip(axes, digits, strict=True))


def _common(*regions: Sequence[tuple[int, int]]) -> int:
    """How many elements lie in all of these regions."""
    count = 1
    for spans in zip(*regions, strict=True):
        count *= max(0, min(stop for _, stop in spans) - max(start for start, _ in spans))
    return count
