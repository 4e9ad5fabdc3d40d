"""Random programs under the checker, on all ranks, held against what they mean on one device, forward and backward.

What a type claims is denoted as the oracle has it: R and I are equal tensors, P adds up, S(i) is put together, and V
without a shard is a value per rank. On one device a transition changes no value, but that R read as P counts once per
rank, and that V read as P is summed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import init_device_mesh

import shardwise as spmd
from shardwise.checker.parts.row_orders import order_of
from shardwise.diagnostics.errors import SpmdTypeError
from shardwise.interop.tensors.tagging import type_of
from shardwise.oracle.reassemble import Grid, Unreadable, deal, fold
from shardwise.types.placement import I, P, PerMeshAxisSpmdType, R, Shard, V
from shardwise.types.spec import partition_spec_get_shard
from shardwise.types.tensor_type import TensorType
from shardwise.worlds.world import CollectiveMismatch, Deadlock, InProcessWorld, RankFailure, RankTimeout

from .program import AXES, OPERATORS, TRANSITIONS, Coordinates, Operation, RandomProgram, Shape, Step, Transition

PRECISION = 1e-9
"""Of a comparison, in units of the largest number of the program."""
LARGE = 1e6
NEAR = 1e-6


class Unsuited(Exception):
    """A program whose numbers decide nothing: they overflow, or a derivative jumps where they are."""


@dataclass(frozen=True)
class RankRun:
    """What one rank has done.

    ``steps``      those that the checker has accepted; ``sources``: the placement that each transition started from.
    ``followed``   the steps whose results a cotangent was sent into. ``gradients``: what came out, for every input.
    """

    steps: tuple[Step, ...]
    sources: tuple[PerMeshAxisSpmdType | None, ...]
    types: tuple[TensorType, ...]
    values: tuple[Tensor, ...]
    followed: tuple[int, ...]
    gradients: tuple[Tensor, ...]


@dataclass(frozen=True)
class Denoted:
    """A value, or one for each place along ``axes``."""

    axes: tuple[int, ...]
    parts: Mapping[Coordinates, Tensor]

    def at(self, axes: Sequence[int], coordinates: Coordinates) -> Tensor:
        """The value at a place along ``axes``, which are at least its own."""
        place = dict(zip(axes, coordinates, strict=True))
        return self.parts[tuple(place[axis] for axis in self.axes)]


def disagreement(program: RandomProgram) -> str | None:
    """Why what the checker accepts of a program is not so; None if it is. Errors: Unsuited."""
    try:
        runs = InProcessWorld(program.ranks, timeout_s=60).run(run_rank, program)
    except (RankFailure, RankTimeout, Deadlock, CollectiveMismatch) as error:
        return f"an accepted program fails: {error}"
    first = runs[0]
    if any((run.steps, run.types) != (first.steps, first.types) for run in runs):
        return f"the ranks get different verdicts: {[program.shown(run.steps) for run in runs]}"
    inputs = [_input(program, at) for at in range(len(program.inputs))]
    wholes = _on_one_device(program, first, inputs)
    scale = _scale([*inputs, *wholes])
    reason = _forward(program, runs, wholes, scale) or _backward(program, runs, inputs, wholes, scale)
    return f"{reason}\n{program.shown(first.steps)}" if reason else None


def accepted(program: RandomProgram) -> list[str]:
    """The names of the accepted steps with a shard or a pending sum among their operands: only those can be wrong."""
    run = InProcessWorld(program.ranks).run(run_rank, program)[0]
    types = [*(one.type(program.grid) for one in program.inputs), *run.types]
    return [step.name for step in run.steps if any({V, P} & set(types[at].placements) for at in step.operands)]


def run_rank(program: RandomProgram) -> RankRun:
    """The program as one rank of a world runs it, under the checker; then its backward pass."""
    mesh = init_device_mesh("cpu", program.mesh, mesh_dim_names=AXES[: len(program.mesh)])
    rank = dist.get_rank()
    steps: list[Step] = []
    sources: list[PerMeshAxisSpmdType | None] = []
    shapes = [one.shape for one in program.inputs]
    with spmd.set_current_mesh(mesh):
        with spmd.typecheck(local=program.local):
            leaves = [_given(program, at, rank) for at in range(len(program.inputs))]
            values = [*leaves]
            for draw in program.draws:
                found = program.step(draw, shapes)
                if found is None:
                    continue
                step, shape = found
                try:
                    result, source = _taken(program, step, [values[at] for at in step.operands])
                except SpmdTypeError:
                    continue
                if result is not None and not _is_final(result):
                    steps.append(step)
                    sources.append(source)
                    values.append(result)
                    shapes.append(shape)
        results = values[len(leaves) :]
        types = tuple(map(type_of, results))
        followed = tuple(at for at, result in enumerate(results) if result.requires_grad)
        sent = [_dealt_cotangent(program, at, shapes[len(leaves) + at], types[at])[rank] for at in followed]
        gradients = _gradients([results[at] for at in followed], leaves, sent)
    detached = tuple(result.detach() for result in results)
    return RankRun(tuple(steps), tuple(sources), types, detached, followed, gradients)


def _is_final(result: Tensor) -> bool:
    """True for what these programs do not judge: pending maxima and norms, other scales, rows in another order."""
    type = type_of(result)
    return bool(order_of(result)) or any(
        place.is_extremum or place is P("norm") or type.exponent(axis) != 0
        for axis, place in zip(type.axes, type.placements, strict=True)
    )


def _taken(
    program: RandomProgram, step: Step, operands: Sequence[Tensor]
) -> tuple[Tensor | None, PerMeshAxisSpmdType | None]:
    """The step's result, None if it has no meaning on one device; and what a transition started from."""
    if isinstance(step, Operation):
        return OPERATORS[step.name].call(*operands, dim=step.dim), None
    axis = list(program.grid.axes.values())[step.axis]
    type = type_of(operands[0])
    src = partition_spec_get_shard(type.spec, axis) or type.get(axis)
    if src not in (R, I, V, P) and not isinstance(src, Shard):
        return None, None
    # A value per rank is no part of a whole: of the transitions only the reading as P has a meaning on one device.
    apart = V in (src, step.dst) or (step.name == "reinterpret" and isinstance(src, Shard))
    if step.name == "all_to_all" and src == step.dst:
        return None, None  # blocks change places, so the value is another one
    if apart and (step.name, src, step.dst) not in (("reinterpret", V, P), ("reinterpret", R, V)):
        return None, None
    return TRANSITIONS[step.name](operands[0], AXES[step.axis], src=src, dst=step.dst), src


def _given(program: RandomProgram, at: int, rank: int) -> Tensor:
    """The rank's own part of an input, with its type."""
    one, grid = program.inputs[at], program.grid
    type = one.type(grid)
    whole, axes = _input(program, at), _apart(type, grid)
    place = tuple(grid.coordinates[rank][axis] for axis in axes)
    piece = deal(whole.at(axes, place).detach(), type, grid, _generator(at))[rank].clone().requires_grad_()
    local = {name: place for name, place in zip(AXES, one.placements, strict=False) if not isinstance(place, Shard)}
    return spmd.assert_type(piece, local) if type.spec is None else spmd.assert_type(piece, local, type.spec)


def _input(program: RandomProgram, at: int) -> Denoted:
    axes = _apart(program.inputs[at].type(program.grid), program.grid)
    generator = _generator(at)
    return Denoted(
        axes,
        {
            place: torch.randn(program.inputs[at].shape, dtype=torch.float64, generator=generator).requires_grad_()
            for place in program.coordinates(axes)
        },
    )


def _apart(type: TensorType, grid: Grid) -> tuple[int, ...]:
    """The axes along which every rank has a value of its own."""
    return tuple(
        number
        for number, axis in enumerate(grid.axes.values())
        if type.get(axis) is V and partition_spec_get_shard(type.spec, axis) is None
    )


def _generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def _cotangent(step: int, shape: Shape, place: Coordinates) -> Tensor:
    return torch.randn(shape, dtype=torch.float64, generator=_generator(hash((step, place)) % 2**31))


def _dealt_cotangent(program: RandomProgram, step: int, shape: Shape, type: TensorType) -> list[Tensor]:
    """What every rank sends back into the result of a step, in rank order."""
    grid = program.grid
    axes = _apart(type, grid)
    by_place = {
        place: deal(_cotangent(step, shape, place), type.backward_type(), grid, _generator(step))
        for place in program.coordinates(axes)
    }
    return [
        by_place[tuple(place[axis] for axis in axes)][rank].contiguous() for rank, place in enumerate(grid.coordinates)
    ]


def _gradients(outs: Sequence[Any], leaves: Sequence[Tensor], sent: Sequence[Tensor]) -> tuple[Tensor, ...]:
    if not outs:
        return tuple(torch.zeros_like(leaf) for leaf in leaves)
    return torch.autograd.grad(outs, leaves, sent, allow_unused=True, materialize_grads=True)


def _on_one_device(program: RandomProgram, run: RankRun, inputs: Sequence[Denoted]) -> list[Denoted]:
    """What the results of the steps denote."""
    values = [*inputs]
    for step, source in zip(run.steps, run.sources, strict=True):
        values.append(_denoted(program, step, source, [values[at] for at in step.operands]))
    return values[len(inputs) :]


def _denoted(program: RandomProgram, step: Step, source: Any, operands: Sequence[Denoted]) -> Denoted:
    if isinstance(step, Transition):
        return _moved(program, step, source, operands[0])
    axes = tuple(sorted({axis for operand in operands for axis in operand.axes}))
    operator = OPERATORS[step.name]
    parts = {}
    for place in program.coordinates(axes):
        given = [operand.at(axes, place) for operand in operands]
        if operator.margin is not None and bool((operator.margin(*given, dim=step.dim) < NEAR).any()):
            raise Unsuited("a derivative jumps here")
        parts[place] = operator.call(*given, dim=step.dim)
    return Denoted(axes, parts)


def _moved(program: RandomProgram, step: Transition, source: Any, operand: Denoted) -> Denoted:
    if step.name != "reinterpret" or step.dst is not P or source is P:
        return operand
    size = program.mesh[step.axis]
    if step.axis not in operand.axes:  # the same on every rank of the axis, so all of it is counted
        return Denoted(operand.axes, {place: part * size for place, part in operand.parts.items()})
    rest = tuple(axis for axis in operand.axes if axis != step.axis)
    at = operand.axes.index(step.axis)
    return Denoted(
        rest,
        {
            place: torch.stack([operand.parts[(*place[:at], own, *place[at:])] for own in range(size)]).sum(0)
            for place in program.coordinates(rest)
        },
    )


def _scale(wholes: Sequence[Denoted]) -> float:
    numbers = [part.detach().abs().max() for whole in wholes for part in whole.parts.values()]
    largest = max(1.0, float(torch.stack(numbers).max()))
    if not largest < LARGE:
        raise Unsuited("the numbers are too large to be compared")
    return largest


def _forward(program: RandomProgram, runs: Sequence[RankRun], wholes: Sequence[Denoted], scale: float) -> str | None:
    for at, (type, whole) in enumerate(zip(runs[0].types, wholes, strict=True)):
        reason = _misread(program, [run.values[at] for run in runs], type, whole, scale)
        if reason:
            return f"v{len(program.inputs) + at}: {reason}"
    return None


def _misread(program: RandomProgram, pieces: Sequence[Any], type: TensorType, whole: Denoted, scale: float) -> str:
    """Why the ranks' pieces are not of this type and do not denote ``whole``; empty if they are and do."""
    grid = program.grid
    if any(type.get(axis) not in (R, I, V, P) for axis in grid.axes.values()):
        return ""  # nothing is claimed about an axis, so nothing can be wrong
    axes = _apart(type, grid)
    if set(whole.axes) - set(axes):
        return f"it is {type}, but every rank along {[AXES[axis] for axis in whole.axes]} has a value of its own"
    try:
        found = fold(dict(enumerate(pieces)), type, tolerance=PRECISION * scale)
    except Unreadable as error:
        return f"it is not {type}: {error}"
    for rank, value in found.items():
        place = tuple(grid.coordinates[rank][axis] for axis in axes)
        wanted = whole.at(axes, place).detach()
        if value.shape != wanted.shape:
            return f"as {type} it has shape {list(value.shape)}, on one device {list(wanted.shape)}"
        apart = float((value - wanted).abs().max())
        if not apart <= 10 * PRECISION * scale:
            return f"as {type} it is off by {apart:.3g}"
    return ""


def _backward(
    program: RandomProgram,
    runs: Sequence[RankRun],
    inputs: Sequence[Denoted],
    wholes: Sequence[Denoted],
    scale: float,
) -> str | None:
    first = runs[0]
    total = torch.zeros((), dtype=torch.float64)
    for at, (type, whole) in enumerate(zip(first.types, wholes, strict=True)):
        parts = list(whole.parts.values())
        if at not in first.followed:
            if any(part.requires_grad for part in parts):
                return f"v{len(program.inputs) + at} has lost its gradient"
            continue
        axes = _apart(type, program.grid)
        for place in program.coordinates(axes):
            total = total + (_cotangent(at, parts[0].shape, place) * whole.at(axes, place)).sum()
    leaves = [part for one in inputs for part in one.parts.values()]
    wanted = iter(_gradients([total] if total.requires_grad else [], leaves, [torch.ones_like(total)]))
    gradients = [Denoted(one.axes, {place: next(wanted) for place in one.parts}) for one in inputs]
    largest = max(scale, _scale(gradients))
    for at, (one, gradient) in enumerate(zip(program.inputs, gradients, strict=True)):
        dual = one.type(program.grid).backward_type()
        reason = _misread(program, [run.gradients[at] for run in runs], dual, gradient, largest)
        if reason:
            return f"the gradient of v{at}: {reason}"
    return None
