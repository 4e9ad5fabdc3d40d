"""Tensors that only give a call its shape: where they are sharded, the result has the shape of a shard.

``x.expand_as(shard)`` and ``torch.fill(shard, x)`` take no value from the shard, and the rules do not see it as an
operand; but where it is cut, the result is cut the same way, or the call is wrong.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from shardwise.mesh.axis import MeshAxis
from shardwise.types.placement import UNKNOWN, I, Placement, V
from shardwise.types.spec import PartitionSpec, entry_axes, make_entry, partition_spec_get_shard
from shardwise.types.tensor_type import Ground, TensorType

from .call_types import AxisRefusal, Outcome
from .local import Refusal
from .operand import Bound

_BROADCASTS = {"expand_as", "fill", "copy"}
"""The first operand is broadcast into the shape."""
GIVES_SHAPE = _BROADCASTS | {"view_as", "reshape_as"}
"""Operators (as messages call them) whose template gives the result its shape; others take a dtype or a device."""


def shaped(
    op: str, outcome: Outcome, template: TensorType, shape: tuple[int, ...], operands: Sequence[Bound]
) -> Outcome:
    """``outcome`` with the result cut as ``template`` is, or with the refusal of what does not fit.

    ``shape``  the template's, which is the result's.
    """
    type = outcome.type
    if template.spec is None or type.ground is Ground.UNKNOWN:
        return outcome
    entries = list(type.spec or PartitionSpec(*[None] * len(shape)))
    source = operands[0].shape if operands and operands[0].shape is not None else ()
    refusals: list[AxisRefusal] = []
    changes: dict[MeshAxis, Placement] = {}
    for dim, entry in enumerate(template.spec):
        taken = bool(entry_axes(entries[dim]))
        for axis in entry_axes(entry):
            found, place = partition_spec_get_shard(type.spec, axis), type.get(axis)
            if place is UNKNOWN or (found is not None and found.dim == dim):
                continue
            fits = op in _BROADCASTS and _is_broadcast(source, dim, len(shape))
            if fits and place is I:  # copied into the shards of a dim, it is used differently on each rank
                outcome = replace(outcome, grad_matters=True)
                if operands[0].grad:
                    refusals.append(AxisRefusal(axis, Refusal("SW101", "spread over a shard", (0,))))
                    changes[axis] = UNKNOWN
                    continue
            if found is None and not type.is_partial(axis) and fits and not taken:
                changes[axis] = V
                entries[dim] = make_entry((*entry_axes(entries[dim]), axis))
                continue
            code = "SW401" if found is not None else "SW402"
            refusals.append(AxisRefusal(axis, Refusal(code, "not cut like the shape that it gets", (0,))))
            changes[axis] = UNKNOWN
    if not changes:
        return outcome
    spec = None if refusals else PartitionSpec(*entries)
    uneven = type.uneven | (template.uneven & changes.keys())
    cut = TensorType.of(
        {**{axis: type.get(axis) for axis in type.axes}, **changes}, spec, uneven=uneven, scale=type.scale
    )
    sources = dict(zip(type.axes, outcome.sources, strict=False))
    return replace(
        outcome,
        type=cut,
        refusals=(*outcome.refusals, *refusals),
        sources=tuple(sources.get(axis) for axis in cut.axes) if outcome.sources else (),
    )


def _is_broadcast(source: tuple[int, ...], dim: int, ndim: int) -> bool:
    """True if the source has one element along the shape's dim ``dim``."""
    at = dim - (ndim - len(source))
    return at < 0 or source[at] == 1
