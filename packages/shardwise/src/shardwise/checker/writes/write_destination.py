"""What may be written where? The type of the destination of an in-place or ``out=`` call.

The destination takes the functional result's type. It may have had no type or been a constant; a destination of another
type is an error, except that a replicate or invariant one outside autograd may become varying. Views of the
destination follow, through the alias cell.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from shardwise.diagnostics.errors import SpmdTypeError
from shardwise.interop.autograd.gradient_content import is_foreign
from shardwise.interop.autograd.gradient_origin import beginning, gradient_origin, inherit, owner_of
from shardwise.interop.calls.located_call import LocatedCall, report
from shardwise.interop.fixes.writes import equal_before_write, made_anew
from shardwise.interop.running.session import Session
from shardwise.interop.tensors.derived_types import writes
from shardwise.interop.tensors.tagging import (
    Provenance,
    alias,
    forget_memory,
    is_pieced,
    set_part,
    set_type,
    tag_of,
    type_of,
)
from shardwise.interop.torch_compat import base_of
from shardwise.mesh.axis import MeshAxis
from shardwise.mesh.entry import current_entry
from shardwise.mesh.regions import reinterpret
from shardwise.types.placement import UNKNOWN, Placement, R
from shardwise.types.spec import partition_spec_get_shard
from shardwise.types.tensor_type import UNKNOWN_TYPE, UNTYPED, Ground, TensorType

from ..diagnosis.memory_findings import anew, retyped_in_place
from ..parts.passed_pieces import stands_unless_sent
from ..state.session import CheckSession
from .gradient_writes import OVERWRITING, gathers_gradients, overwritten, summed_by_hand, written_contents
from .local_norm import scaled_by_local_norm
from .shared_memory import check_own_part, is_parameter, note_written_over

_OF_EVERY_ELEMENT = (*OVERWRITING, "add_", "sub_", "mul_", "div_")
"""After these a constant is on the scale of what they give, as in ``count += len(rows)``."""


def settle(
    session: CheckSession,
    op: str,
    destination: object,
    result: TensorType,
    operands: Sequence[tuple[str, object]],
    results: Sequence[TensorType] = (),
) -> list[tuple[torch.Tensor, TensorType]]:
    """The types that the destination's tensors will have; conflicts are reported. Call it before the op runs.

    ``results``  the type of each result, where they are not all ``result``.
    """
    many = destination if isinstance(destination, (list, tuple)) else (destination,)
    settled = []
    for number, tensor in enumerate(many):
        result = results[number] if number < len(results) else result
        if isinstance(tensor, torch.Tensor):
            _join_memory(tensor)
            before = type_of(tensor)
            whole = (
                summed_by_hand(session, tensor, result)
                or overwritten(op, tensor, result, operands)
                or scaled_by_local_norm(session, op, tensor, operands)
            )
            if whole is not None:
                settled.append((tensor, whole))
                continue
            result = on_axes_of(before, result)
            after, conflicts = merge(before, result, tensor, op)
            if session.only_observed and result is UNTYPED and after is UNKNOWN_TYPE:
                after = UNTYPED  # data that a program has put together, as rows into a tensor of padding, are data
            for axis in conflicts:
                count = 0 if session.collector is None else session.collector.count
                _refuse(session, op, tensor, before, result, axis, operands)
                if session.collector is not None and before.is_equal(axis) and result.is_varying(axis):
                    stands_unless_sent(session, axis, tensor, session.collector.added_since(count))
            if not conflicts and not _is_declared(tensor):
                after = without_what_is_not_known(after, result)
                if op in OVERWRITING and result.ground.is_constant and not is_part(tensor):
                    after = after.with_ground(result.ground) if before.ground.is_constant else as_zeros(after, result)
            if not conflicts:
                check_own_part(session, op, tensor, result)
                note_written_over(session, op, tensor, result)
            settled.append((tensor, after))
    return settled


def on_axes_of(before: TensorType, result: TensorType) -> TensorType:
    """``result``, which was judged on the current mesh, said on the axes of a destination that keeps to another one.

    {dp: R, cp: V, tp: V} is {dp: R, ep: V} to an expert's weight, where ep is the ranks of cp and tp.
    """
    mesh = current_entry()
    if mesh is None or all(axis in mesh.axes for axis in before.axes):
        return result
    alike = {axis for axis in result.axes if all(axis == own or axis.isorthogonal(own) for own in before.axes)}
    try:
        return reinterpret(result, alike.union(before.axes))
    except SpmdTypeError:
        return result


def _is_declared(tensor: torch.Tensor) -> bool:
    """Is it a parameter, whose type is trusted, or a gradient, which owes what it owes whatever is done to it?"""
    return is_parameter(tensor) or gradient_origin(tag_of(tensor)) is not None


def without_what_is_not_known(type: TensorType, written: TensorType) -> TensorType:
    """The destination's type without the axes of which nothing is known of what is written, after a call in order."""
    if written.ground not in (Ground.ABSENT, Ground.UNKNOWN) or type.ground is not Ground.ABSENT:
        return type
    lost = [axis for axis in type.local if written.get(axis) is None or written.get(axis) is UNKNOWN]
    return type.with_placements(dict.fromkeys(lost, UNKNOWN)) if lost else type


def as_zeros(type: TensorType, written: TensorType) -> TensorType:
    """The type of a tensor that has been zeroed: as zeros made like it, it is a term of whatever is added to it."""
    known = (
        written.ground is Ground.ZERO
        and type.axes
        and type.ground is Ground.ABSENT
        and not any(place is UNKNOWN for place in type.placements)
    )
    return type.with_ground(Ground.ZERO) if known else type


def write(
    settled: Sequence[tuple[torch.Tensor, TensorType]],
    origin: Provenance,
    op: str = "",
    operands: Sequence[object] = (),
) -> None:
    """Give the destination's tensors their types, after ``op`` has run on them and ``operands``."""
    for tensor, type in settled:
        if type is UNKNOWN_TYPE or (type is UNTYPED and type_of(tensor).ground.is_constant):
            forget_memory(tensor, type)
            continue
        tag = tag_of(tensor)
        pieced = gathers_gradients(tensor, origin)
        if pieced or beginning(origin) is not None or any(is_pieced(value) for value in operands):
            contents, owner = written_contents(op, tensor, operands), owner_of(tensor)
            # Pieces say nothing of an axis that the memory had a type over and what is written has not.
            copied = owner is None and any(piece.content is not None for piece in contents)
            copied = copied and set(type_of(tensor).axes) <= set(type.axes)
            if pieced or copied or (owner is not None and is_foreign(tensor, contents, owner)):
                set_part(tensor, type, inherit(tensor, origin), contents)
                continue
        if type.ground.is_constant and tag is not None and tag.cell is not None and gradient_origin(tag) is not None:
            set_part(tensor, type, tag.origin)
        elif type_of(tensor) is not type:
            writes(tensor)
            set_type(tensor, type, inherit(tensor, origin), whole=not is_part(tensor))


def _join_memory(tensor: torch.Tensor) -> None:
    """``tensor`` may be a view that was made of memory into which nobody had written, so that it has no type yet."""
    if tag_of(tensor) is not None:
        return
    base = base_of(tensor)
    memory = None if base is None else tag_of(base)
    if memory is not None and (memory.cell is not None or memory.type.ground is Ground.EMPTY):
        alias(tensor, base, type_of(base).with_spec(None), None)


def is_part(tensor: torch.Tensor) -> bool:
    """``tensor`` is a view of some of the elements of a larger one."""
    base = base_of(tensor)
    return base is not None and tensor.numel() < base.numel()


def merge(before: TensorType, result: TensorType, tensor: torch.Tensor, op: str) -> tuple[TensorType, list[object]]:
    """The type of ``tensor`` after ``op`` has written ``result``, and the axes on which the two contradict."""
    requires_grad = tensor.requires_grad
    if result.ground is Ground.UNKNOWN:
        return (result if before.ground is not Ground.ABSENT and not requires_grad else before), []
    if result.ground.is_constant:
        if before.ground is Ground.EMPTY and not requires_grad:
            return _into_empty(before, result), []
        if not before.axes and not before.ground.is_constant and not requires_grad:
            return result, []
        conflicts = [axis for axis in before.axes if before.is_partial(axis) and result.ground is not Ground.ZERO]
        zeros = before.ground is Ground.ZERO and result.ground is Ground.ZERO
        if before.ground.is_constant and not (conflicts or zeros or requires_grad):
            before = before.with_ground(Ground.CONSTANT)  # it may be only a part that was written
            if op in _OF_EVERY_ELEMENT and (before.scale or result.scale) and not is_part(tensor):
                before = before.rescaled({axis: result.exponent(axis) for axis in before.axes if axis in result})
        return before, conflicts
    if not result.axes:
        # Nothing is known of what is written: a constant is none any more, nor is memory empty.
        if before.ground is Ground.EMPTY and not requires_grad:
            return result, []
        return (UNKNOWN_TYPE if before.ground.is_constant and not requires_grad else before), []
    if before.ground is not Ground.ABSENT and not requires_grad:
        return result, []
    changes: dict[Any, Placement] = {}
    conflicts = []
    for axis, new in zip(result.axes, result.placements, strict=True):
        old = before.get(axis)
        if old is new and _shards_differ(before, result, axis):
            conflicts.append(axis)
        if old is new or new.is_unknown:
            continue
        if old is None or old.is_unknown or (new.is_varying and old.is_equal and not requires_grad):
            changes[axis] = new
        elif old.is_varying and new.is_equal:
            continue  # varying claims nothing, so equal values are welcome
        elif old.is_equal and new.is_equal:
            # Equal bits: a destination outside autograd follows, a parameter keeps its declared flavour.
            if not requires_grad:
                changes[axis] = new
        else:
            conflicts.append(axis)
    after = before.with_placements(changes) if changes else before
    if after.scale or result.scale:
        after = after.rescaled({axis: result.exponent(axis) for axis in result.axes if axis in after})
    return after, conflicts


def _into_empty(memory: TensorType, constant: TensorType) -> TensorType:
    """The type of ``memory``, into which nobody had written, once a constant is in it: cut as its sizes say."""
    if not memory.axes:
        return constant
    places = {**dict(zip(constant.axes, constant.placements, strict=True)), **memory.local}
    one_value = constant.ground in (Ground.UNIFORM, Ground.ZERO)
    ground = constant.ground if one_value else Ground.ABSENT
    return TensorType.of(places, memory.spec, ground, memory.uneven, constant.scale)


def _shards_differ(before: TensorType, result: TensorType, axis: object) -> bool:
    """True if both say which dim is sharded, and disagree."""
    shards = [partition_spec_get_shard(type.spec, axis) for type in (before, result)]
    return None not in shards and shards[0] != shards[1]


def _refuse(
    session: Session,
    op: str,
    tensor: torch.Tensor,
    before: TensorType,
    result: TensorType,
    axis: object,
    operands: Sequence[tuple[str, object]],
) -> None:
    located = LocatedCall(op, [("destination", tensor), *operands])
    old = partition_spec_get_shard(before.spec, axis) or before.get(axis)
    new = partition_spec_get_shard(result.spec, axis) or result.get(axis, R)
    fixes = (
        *(equal_before_write(located, axis, before.get(axis)) if isinstance(axis, MeshAxis) else ()),
        *made_anew(located, anew(op, new)),
    )
    in_autograd = tensor.requires_grad and result.is_varying(axis)
    said = retyped_in_place(op, located.name(0), old, new, axis, fixes, in_autograd=in_autograd)
    report(session, located, said, axis, operands=located.shown(axis))
