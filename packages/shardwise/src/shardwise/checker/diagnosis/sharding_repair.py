"""Which sharding would be accepted, and what is the cheapest way there? For a call whose shardings were refused.

Every operand may be gathered, moved to another dim, or cut; the combinations of at most two such moves that the global
rule admits are ranked by the bytes that each rank receives. Source of the costs: ring algorithms, an all-gather of a
tensor of B bytes over n ranks moves B * (n - 1) / n per rank, an all-to-all of shards B * (n - 1) / n / n.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from shardwise.op_rules.propagation.dim_labels import Call, Labelling, Shape
from shardwise.op_rules.propagation.local import Refusal, Weak
from shardwise.op_rules.propagation.operand import Bound
from shardwise.op_rules.propagation.sharded import Sharded, sharded_rule
from shardwise.op_rules.schema import OpRule
from shardwise.types.placement import R, Shard, V
from shardwise.types.spec import partition_spec_get_shard
from shardwise.types.tensor_type import Ground

_MOST_OPERANDS = 4
"""A call with more tensors gets single moves only; the pairs would be many and the help line long."""


@dataclass(frozen=True, slots=True)
class Step:
    """Move the operand at ``position`` from ``src`` to ``dst`` with ``call``; ``elements`` are received per rank."""

    position: int
    call: str
    src: Any
    dst: Any
    elements: float


@dataclass(frozen=True, slots=True)
class ShardRepair:
    """Steps after which the call is admitted, and what its result is then along the axis."""

    steps: tuple[Step, ...]
    result: Any

    @property
    def elements(self) -> float:
        return sum(step.elements for step in self.steps)


def shard_repairs(
    rule: OpRule, call: Call, operands: Sequence[Bound], axis: Any, *, partials: bool
) -> list[ShardRepair]:
    """The admitted repairs, cheapest first."""
    tensors = [at for at, operand in enumerate(operands) if operand.shape is not None]
    if rule.labels is None or not tensors:
        return []
    now = [_sharded(operands[at], axis) for at in tensors]
    options = [_moves(at, operands[at], one, axis.size()) for at, one in zip(tensors, now, strict=True)]
    found = []
    for count in (1, 2) if len(tensors) <= _MOST_OPERANDS else (1,):
        for chosen in itertools.combinations(range(len(tensors)), count):
            for steps in itertools.product(*(options[at] for at in chosen)):
                result = _try(rule, call, now, chosen, steps, axis.size(), partials)
                if result is not None:
                    found.append(ShardRepair(steps, result))
    return sorted(found, key=lambda one: (one.elements, len(one.steps)))


def _sharded(operand: Bound, axis: Any) -> Sharded:
    if isinstance(operand.type, Weak):
        return Sharded(None)
    uniform = operand.type.ground in (Ground.ZERO, Ground.UNIFORM)
    shard = partition_spec_get_shard(operand.type.spec, axis)
    uneven = axis in operand.type.uneven
    return Sharded(operand.type.get(axis), None if shard is None else shard.dim, uniform, uneven)


def _moves(at: int, operand: Bound, now: Sharded, size: int) -> list[Step]:
    """What can be done with one operand along the axis."""
    assert operand.shape is not None, "only tensors are moved"
    elements = 1.0
    for extent in operand.shape:
        elements *= extent
    share = (size - 1) / size
    dims = range(len(operand.shape))
    if now.dim is not None:
        whole = elements * size
        gather = Step(at, "all_gather", Shard(now.dim), R, whole * share)
        if now.uneven:
            return [gather]
        return [gather] + [
            Step(at, "all_to_all", Shard(now.dim), Shard(dim), elements * share)
            for dim in dims
            if dim != now.dim and operand.shape[dim] % size == 0
        ]
    if now.place is R:
        return [Step(at, "convert", R, Shard(dim), 0.0) for dim in dims if operand.shape[dim] % size == 0]
    return []


def _try(
    rule: OpRule,
    call: Call,
    now: Sequence[Sharded],
    chosen: Sequence[int],
    steps: Sequence[Step],
    size: int,
    partials: bool,
) -> Any:
    """The result's placement after ``steps``; None if the call is still refused."""
    shapes = list(call.tensors)
    after = list(now)
    for at, step in zip(chosen, steps, strict=True):
        shapes[at] = _reshaped(shapes[at], step, size)
        after[at] = Sharded(R) if step.dst is R else Sharded(V, step.dst.dim, now[at].uniform)
    labelling = rule.labels(replace(call, tensors=tuple(shapes))) if rule.labels is not None else None
    if labelling is None or not _agree(labelling, shapes):
        return None
    if all(one.dim is None for one in after):
        return None if any(one.place.is_partial for one in after if one.place is not None) else R
    placed = sharded_rule(labelling, after, partials=partials)
    return None if isinstance(placed, Refusal) else placed.place


def _reshaped(shape: Shape, step: Step, size: int) -> Shape:
    extents = list(shape.shape)
    if isinstance(step.src, Shard):
        extents[step.src.dim] *= size
    if isinstance(step.dst, Shard):
        extents[step.dst.dim] //= size
    return replace(shape, shape=tuple(extents))


def _agree(labelling: Labelling, shapes: Sequence[Shape]) -> bool:
    """True if every label has one extent, so that the operator would accept the repaired shapes."""
    extents: dict[str, int] = {}
    return all(extents.setdefault(label, extent) == extent for label, extent in _labelled(labelling, shapes))


def _labelled(labelling: Labelling, shapes: Sequence[Shape]) -> Iterator[tuple[str, int]]:
    for dims, shape in zip(labelling.operands, shapes, strict=False):
        for label, extent in zip(dims, shape.shape, strict=False):
            if label is not None:
                yield label, extent
