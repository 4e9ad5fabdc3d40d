"""How the steps of a plan run: each is a collective or coercion along one axis, or an exchange over several at once.

Where several axes cut a dim in another order than the ranks of their flattened group stand in, pieces are put in order
before or after the collective, locally. A general exchange sends every rank the elements that its new block has in
common with this rank's old one. Everything goes through the recipes of single collectives, and so does the gradient.

Worked case, axes a=2 and b=2, dim of 8: the flattened group has the ranks (a, b) = 00, 01, 10, 11. Gathered from
pieces over (b, a), they arrive as elements 01, 45, 23, 67, and are put in order by swapping the middle two.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from shardwise.interop.communication.process_groups import Communicator, communicator
from shardwise.mesh.axis import MeshAxis, flatten_axes
from shardwise.planner.plans import PlanStep
from shardwise.types.placement import PerMeshAxisLocalSpmdType, PerMeshAxisSpmdType, Shard
from shardwise.types.spec import entry_axes
from shardwise.types.tensor_type import TensorType

from .functions import Common, perform, recipe_for

Axes = tuple[MeshAxis, ...]
Interval = tuple[int, int]
"""Where a block begins along a dim, and how long it is."""


@dataclass(frozen=True, slots=True)
class MovedTensor:
    """What all steps of one call share: the global shape, the groups over several axes, and the options."""

    shape: tuple[int, ...]
    groups: Mapping[MeshAxis, object]
    common: Common

    def communicator(self, axes: Axes) -> Communicator:
        """Of one axis, or of the group over all of ``axes``."""
        if len(axes) == 1:
            return communicator(axes[0])
        return communicator(self.groups[flatten_axes(axes)])  # type: ignore[arg-type]  # groups are torch's own

    def step(
        self,
        op: str,
        x: Tensor,
        axes: Axes,
        src: PerMeshAxisSpmdType,
        dst: PerMeshAxisSpmdType,
        sizes: object = None,
    ) -> Tensor:
        """One transition through its recipe."""
        recipe = recipe_for(op, x, axes[0], src, dst, self.common, expert_mode=True)
        return perform(x, recipe, self.communicator(axes), sizes)


def run_step(x: Tensor, step: PlanStep, moved: MovedTensor) -> Tensor:
    """``x`` after ``step``."""
    return _RUN[step.op](x, step, moved)


def _convert(x: Tensor, step: PlanStep, moved: MovedTensor) -> Tensor:
    (axis,) = axes = _axes(step)
    src, dst = _placement(step.src, axis), _placement(step.dst, axis)
    cut = dst if isinstance(dst, Shard) else src
    if not isinstance(cut, Shard):
        return moved.step("convert", x, axes, src, dst)
    type = step.dst if cut is dst else step.src
    outer = _entry(type, cut.dim)[:-1]
    whole = _own_interval(moved.shape[cut.dim], outer)[1]
    return moved.step("convert", x, axes, src, dst, _sizes(whole, (axis.size(),)))


def _all_reduce(x: Tensor, step: PlanStep, moved: MovedTensor) -> Tensor:
    axes = _axes(step)
    return moved.step("all_reduce", x, axes, step.src.get(axes[0]), step.dst.get(axes[0]))


def _all_gather(x: Tensor, step: PlanStep, moved: MovedTensor) -> Tensor:
    axes, dim = _axes(step), _dim(step)
    entry = _entry(step.src, dim)
    outer, cutting = entry[: len(entry) - len(axes)], entry[len(entry) - len(axes) :]
    lengths = _lengths(_own_interval(moved.shape[dim], outer)[1], cutting)
    order = _in_group(cutting)
    sizes = [lengths[at] for at in order]
    x = moved.step("all_gather", x, cutting, Shard(dim), step.dst.get(axes[0]), _if_uneven(sizes))
    return _reordered(x, dim, sizes, _inverse(order))


def _reduce_scatter(x: Tensor, step: PlanStep, moved: MovedTensor) -> Tensor:
    axes, dim = _axes(step), _dim(step)
    cutting = _entry(step.dst, dim)[-len(axes) :]
    lengths, order = _lengths(x.shape[dim], cutting), _in_group(cutting)
    x = _reordered(x, dim, lengths, order)
    sizes = [lengths[at] for at in order]
    return moved.step("reduce_scatter", x, cutting, step.src.get(axes[0]), Shard(dim), _if_uneven(sizes))


def _all_to_all(x: Tensor, step: PlanStep, moved: MovedTensor) -> Tensor:
    axes, ndim = _axes(step), x.ndim
    before = [_entry(step.src, dim) for dim in range(ndim)]
    after = [_entry(step.dst, dim) for dim in range(ndim)]
    kept = [tuple(itertools.takewhile(lambda axis: axis not in axes, entry)) for entry in before]
    taken = [entry[len(outer) :] for entry, outer in zip(before, kept, strict=True)]
    placed = [entry[len(outer) :] for entry, outer in zip(after, kept, strict=True)]
    frame = [_own_interval(moved.shape[dim], kept[dim])[1] for dim in range(ndim)]
    gone, come = [dim for dim in range(ndim) if taken[dim]], [dim for dim in range(ndim) if placed[dim]]
    if len(gone) == len(come) == 1 and gone != come and taken[gone[0]] == placed[come[0]] == axes:
        count = math.prod(axis.size() for axis in axes)
        if frame[gone[0]] % count == 0 and frame[come[0]] % count == 0:
            return moved.step("all_to_all", x, axes, Shard(gone[0]), Shard(come[0]))
    return _exchange_apply(x, _Blocks(axes, tuple(frame), tuple(taken), tuple(placed)), moved)


@dataclass(frozen=True, slots=True)
class _Blocks:
    """Which block of a part of shape ``frame`` every rank of the axes has before an exchange, and which after it."""

    axes: Axes
    frame: tuple[int, ...]
    taken: tuple[Axes, ...]
    placed: tuple[Axes, ...]

    def reversed(self) -> _Blocks:
        """The exchange that brings everything back."""
        return _Blocks(self.axes, self.frame, self.placed, self.taken)

    def block(self, cut: tuple[Axes, ...], place: Mapping[MeshAxis, int]) -> list[Interval]:
        """The block of the rank at ``place`` where dims are cut as ``cut`` says."""
        return [_interval(length, axes, place) for length, axes in zip(self.frame, cut, strict=True)]

    def places(self) -> list[dict[MeshAxis, int]]:
        """Where the ranks of the group stand on the axes, in the order of the group."""
        digits = itertools.product(*(range(axis.size()) for axis in self.axes))
        return [dict(zip(self.axes, each, strict=True)) for each in digits]


def _exchange(x: Tensor, blocks: _Blocks, moved: MovedTensor) -> Tensor:
    """The new block of this rank, from what the ranks of the group have of it."""
    own = {axis: communicator(axis).rank for axis in blocks.axes}
    old, new = blocks.block(blocks.taken, own), blocks.block(blocks.placed, own)
    sent, received = [], []
    for place in blocks.places():
        sent.append(_common(old, blocks.block(blocks.placed, place)))
        received.append(_common(new, blocks.block(blocks.taken, place)))
    flat = torch.cat([_part(x, part, old).reshape(-1) for part in sent])
    counts = tuple([_count(part) for part in received]), tuple([_count(part) for part in sent])
    arrived = moved.step("all_to_all", flat, blocks.axes, Shard(0), Shard(0), counts)
    whole = arrived.new_empty([length for _, length in new])
    for piece, part in zip(torch.split(arrived, list(counts[0])), received, strict=True):
        if piece.numel():
            _part(whole, part, new).copy_(piece.view([length for _, length in part]))
    return whole


class _ExchangeContext(Protocol):
    """The context of autograd, as far as an exchange uses it."""

    blocks: _Blocks
    moved: MovedTensor


class ExchangeFunction(torch.autograd.Function):
    """An exchange of blocks; its gradient goes the other way. Every rank takes part in it, whatever it sends."""

    __shardwise_internal__ = True

    @staticmethod
    def forward(ctx: _ExchangeContext, x: Tensor, blocks: _Blocks, moved: MovedTensor) -> Tensor:
        ctx.blocks, ctx.moved = blocks, moved
        return _exchange(x, blocks, moved)

    @staticmethod
    def backward(ctx: _ExchangeContext, grad: Tensor) -> tuple[Tensor, None, None]:
        return _exchange_apply(grad, ctx.blocks.reversed(), ctx.moved), None, None


_exchange_apply: Callable[[Tensor, _Blocks, MovedTensor], Tensor] = ExchangeFunction.apply


def _scale(x: Tensor, step: PlanStep, moved: MovedTensor) -> Tensor:
    return x * step.factor


_RUN: dict[str, Callable[[Tensor, PlanStep, MovedTensor], Tensor]] = {
    "convert": _convert,
    "all_reduce": _all_reduce,
    "all_gather": _all_gather,
    "reduce_scatter": _reduce_scatter,
    "all_to_all": _all_to_all,
    "scale": _scale,
}


def _axes(step: PlanStep) -> Axes:
    return step.axes  # type: ignore[return-value]  # plans are data and say only that they are axes


def _dim(step: PlanStep) -> int:
    assert step.dim is not None, "a collective that cuts or joins says which dim"
    return step.dim


def _entry(type: TensorType, dim: int) -> Axes:
    return () if type.spec is None else entry_axes(type.spec[dim])


def _placement(type: TensorType, axis: MeshAxis) -> PerMeshAxisSpmdType:
    place = type.get(axis)
    for dim in range(len(type.spec or ())):
        if axis in _entry(type, dim):
            return Shard(dim)
    assert isinstance(place, PerMeshAxisLocalSpmdType), "what is unknown is not planned"
    return place


def _in_group(cutting: Axes) -> list[int]:
    """Which of the pieces, numbered in the order of the dim, every rank of the flattened group has."""
    ordered = sorted(cutting, key=lambda axis: axis.sort_key)
    strides = {axis: math.prod(one.size() for one in cutting[at + 1 :]) for at, axis in enumerate(cutting)}
    places = itertools.product(*(range(axis.size()) for axis in ordered))
    return [sum(strides[axis] * digit for axis, digit in zip(ordered, place, strict=True)) for place in places]


def _inverse(order: Sequence[int]) -> list[int]:
    found = [0] * len(order)
    for at, number in enumerate(order):
        found[number] = at
    return found


def _reordered(x: Tensor, dim: int, sizes: Sequence[int], order: Sequence[int]) -> Tensor:
    """``x`` with its pieces of ``sizes`` along ``dim`` in another order."""
    if list(order) == sorted(order):
        return x
    pieces = torch.split(x, list(sizes), dim)
    return torch.cat([pieces[at] for at in order], dim)


def chunk(length: int, count: int, at: int) -> Interval:
    """Piece ``at`` of those that ``torch.chunk`` cuts, with empty ones at the end where it gives fewer."""
    size = -(-length // count)
    start = min(at * size, length)
    return start, min(size, length - start)


def _interval(length: int, axes: Axes, place: Mapping[MeshAxis, int]) -> Interval:
    start = 0
    for axis in axes:
        inner, length = chunk(length, axis.size(), place[axis])
        start += inner
    return start, length


def _own_interval(length: int, axes: Axes) -> Interval:
    return _interval(length, axes, {axis: communicator(axis).rank for axis in axes})


def _lengths(length: int, cutting: Axes) -> list[int]:
    """The lengths of all pieces, in the order of the dim."""
    found = [length]
    for axis in cutting:
        found = [chunk(one, axis.size(), at)[1] for one in found for at in range(axis.size())]
    return found


def _sizes(length: int, counts: Sequence[int]) -> tuple[int, ...] | None:
    (count,) = counts
    return _if_uneven([chunk(length, count, at)[1] for at in range(count)])


def _if_uneven(sizes: Sequence[int]) -> tuple[int, ...] | None:
    return tuple(sizes) if any(size != sizes[0] for size in sizes) else None


def _common(one: Sequence[Interval], other: Sequence[Interval]) -> list[Interval]:
    found = []
    for (start, length), (first, count) in zip(one, other, strict=True):
        begin = max(start, first)
        found.append((begin, max(0, min(start + length, first + count) - begin)))
    return found


def _count(part: Sequence[Interval]) -> int:
    return math.prod(length for _, length in part)


def _part(x: Tensor, part: Sequence[Interval], block: Sequence[Interval]) -> Tensor:
    """What ``x``, which is ``block``, has of ``part``."""
    for dim, ((start, length), (first, _)) in enumerate(zip(part, block, strict=True)):
        x = x.narrow(dim, start - first if length else 0, length)
    return x
