"""Do all ranks have tensors of one shape here? Follows dims that each rank has found the length of by itself.

Local types say nothing about dims, and need not: only a few tensors have such a dim. Their tags are ``RaggedTag``s,
which send every call on them the slow way; there the operator's labels tell which dims of the result are as long. What
is lost on the way goes unsaid: the warning is for a collective that is handed such a tensor. Where shards are globally
typed, ``TensorType.uneven`` says the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch

from shardwise.diagnostics.finding import Diagnosis
from shardwise.diagnostics.source import user_site
from shardwise.diagnostics.source_location import Hop
from shardwise.interop.calls.located_call import LocatedCall, axis_text, report
from shardwise.interop.tensors.containers import tensors_in
from shardwise.interop.tensors.own_lengths import OwnLength, RaggedTag
from shardwise.interop.tensors.tagging import Tag, set_tag, sizes_of, tag_of, type_of
from shardwise.interop.torch_call import Arguments, Keywords, TorchFunction
from shardwise.mesh.axis import MeshAxis
from shardwise.mesh.entry import current_entry
from shardwise.mesh.normalize import axis_argument
from shardwise.op_rules.raw_collectives import RawCollective
from shardwise.op_rules.schema import Decided

from ..call.arguments import Op
from ..state.session import CheckSession

_PLAIN_INDICES = (int, slice, type(None), type(Ellipsis))
_EQUAL = ("all_reduce", "all_gather_", "reduce")
"""Raw collectives that need equal shapes, by how their names begin."""
_LISTS = ("all_gather", "gather")
"""Those that are handed one buffer per rank, which the program may have made of the right lengths."""
_PADDED = "all_gather the lengths first, and pad {name} to the longest"
_SIZES = ("output_split_sizes", "input_split_sizes", "out_splits", "in_splits")


def decides_lengths(op: Op) -> bool:
    """True if some call of ``op`` has results whose size depends on values."""
    return op.rule.lengths is not None


def deciding(op: Op, usual: Callable[..., object]) -> Any:
    """The handler of such an operator: by ``usual``, and then the results' dims that values decided are marked."""
    decider, indexing, choosing = op.rule.lengths, op.rule.op == "getitem", op.rule.op == "torch.where"
    assert decider is not None, "only operators with a size that values decide come here"

    def handle(session: CheckSession, func: TorchFunction, args: Arguments, kwargs: Keywords) -> object:
        result = usual(session, func, args, kwargs)
        # These two are called for something else as a rule.
        if (indexing and args[-1].__class__ in _PLAIN_INDICES) or (choosing and len(args) > 1):
            return result
        decided = decider(dict(op.arguments(args, kwargs)))
        if decided is not None:
            _mark(session, op.name, decided, result)
        return result

    return handle


def _mark(session: CheckSession, op: str, decided: Decided, result: object) -> None:
    axes = {axis for value in decided.by if isinstance(value, torch.Tensor) for axis in _varying(session, value)}
    if not axes:
        return
    site = user_site(2)
    for at, tensor in enumerate(tensors_in(result)):
        dim = decided.dims[0] if len(decided.dims) == 1 else dict(enumerate(decided.dims)).get(at)
        if dim is not None and -tensor.ndim <= dim < tensor.ndim:
            own = (OwnLength(axis, dim % tensor.ndim, site, decided.text, decided.instead) for axis in axes)
            _add(tensor, own)


def _varying(session: CheckSession, value: torch.Tensor) -> list[MeshAxis]:
    """The axes along which ``value`` differs and dims are not followed by global types."""
    type, mesh = type_of(value), current_entry()
    if type.ground.is_constant:
        return []
    followed = () if session.local or mesh is None else set(mesh.axes) - set(mesh.local_axes)
    return [axis for axis in type.axes if type.is_varying(axis) and axis not in followed]


def lengths_of(x: object) -> tuple[OwnLength, ...]:
    """The dims of ``x`` that are as long as each rank has found for itself."""
    tag = tag_of(x)
    return tag.lengths if isinstance(tag, RaggedTag) else ()


def _add(x: torch.Tensor, lengths: Iterable[OwnLength]) -> None:
    tag = tag_of(x) or Tag(type_of(x))
    merged = tuple(dict.fromkeys((*lengths_of(x), *lengths)))
    if merged:
        set_tag(x, RaggedTag(tag.type, tag.origin, tag.cell, merged))


def carry(op: Op, args: Arguments, kwargs: Keywords, result: object) -> None:
    """Mark the dims of the results of a call that are dims of such a length of its operands."""
    operands, values = op.bind(args, kwargs)
    labelling = None if op.rule.labels is None else op.rule.labels(op.labelled(args, kwargs, operands))
    if labelling is None:
        return
    tensors = [value for operand, value in zip(operands, values, strict=True) if operand.shape is not None]
    for value, labels in zip(tensors, labelling.operands, strict=False):
        for length in lengths_of(value):
            label = labels[length.dim] if length.dim < len(labels) else None
            for at, made in enumerate(tensors_in(result) if label is not None else ()):
                own = labelling.results[min(at, len(labelling.results) - 1)]
                for dim, other in enumerate(own[: made.ndim]):
                    # A part of a dim, or several in a row, may have been given any length.
                    whole = made.shape[dim] == value.shape[length.dim] or made.numel() == value.numel()
                    if other == label and whole:
                        _add(made, [replace(length, dim=dim)])


def same_shape(made: object, x: object, without: Any = None) -> None:
    """``made`` has the dims of ``x``; along the axis ``without``, all ranks have one length now."""
    lengths = lengths_of(x)
    if lengths and isinstance(made, torch.Tensor) and tag_of(made) is not None and sizes_of(made) == sizes_of(x):
        _add(made, [one for one in lengths if without is None or one.axis.isorthogonal(without)])


def check_shapes(session: CheckSession, op: str, x: object, axis: Any, remedy: str) -> None:
    """Warn of a collective over ``axis`` that needs tensors of one shape and is handed ``x``."""
    met = [one for one in lengths_of(x) if not axis.isorthogonal(one.axis)]
    if not met:
        return
    first, located = met[0], LocatedCall(op, [("x", x)])
    name, along = located.name(0), axis_text(axis)
    message = f"{op} needs one shape on all ranks of {along}, but each has its own length of dim {first.dim} of {name}"
    facts = (
        f"dim {first.dim} has {first.text}, and that differs between the ranks of {axis_text(first.axis)}",
        f"where lengths differ, {op} hangs, fails or mixes up the rows of different ranks",
    )
    help_lines = (
        remedy.format(name=name, axis=axis_argument(axis)),
        first.instead,
        f"assert_type({name}, {{{axis_argument(axis)}: S({first.dim})}}, even=True), if all ranks have one length",
    )
    hop = () if first.site is None else (Hop("its own length on each rank since this", first.site.location()),)
    operand = located.operand(0, axis)
    operand = replace(operand, origin=(*hop, *operand.origin)[:2])
    report(session, located, Diagnosis("SW117", message, facts, help_lines), axis, operands=(operand,))


def check_raw_shapes(
    session: CheckSession,
    row: RawCollective,
    op: str,
    axis: object,
    sent: Sequence[torch.Tensor],
    given: Mapping[str, object],
) -> None:
    """The same for the raw collective ``row`` that sends these tensors, which the program calls ``op``."""
    ragged = [tensor for tensor in sent if lengths_of(tensor)]
    if not ragged:
        return
    if row.name in _LISTS:
        needed = any(lengths_of(buffer) for buffer in tensors_in(given.get(row.received)))
    elif row.name == "all_to_all_single":
        needed = not any(given.get(sizes) for sizes in _SIZES)
    else:
        needed = row.name.startswith(_EQUAL)
    for tensor in ragged if needed else ():
        check_shapes(session, op, tensor, axis, _PADDED)
