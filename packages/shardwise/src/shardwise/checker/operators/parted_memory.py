"""An operator on memory whose elements have different types: it is judged for each of them, and so is its result typed.

flat: [0, 4) {dp: R}  [4, 8) {dp: P}          flat.div_(2) keeps both, flat.relu() is refused for elements 4 to 7
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from shardwise.diagnostics.source import user_location
from shardwise.interop.autograd.gradient_content import contents_of
from shardwise.interop.tensors.memory_pieces import Piece, joined_type, laid_into
from shardwise.interop.tensors.tagging import (
    Tag,
    adopt_memory,
    is_pieced,
    local_type,
    replace_pieces,
    set_pieces,
    set_tag,
    set_type,
    tag_of,
    type_of,
)
from shardwise.interop.torch_call import Arguments, Keywords, TorchFunction
from shardwise.interop.torch_compat import no_torch_function, same_memory
from shardwise.op_rules.propagation.call_types import Outcome
from shardwise.op_rules.propagation.dim_labels import pointwise
from shardwise.types.placement import V
from shardwise.types.spec import PartitionSpec
from shardwise.types.tensor_type import UNKNOWN_TYPE, Ground, TensorType

from ..call.arguments import Op
from ..diagnosis.reporter import refuse
from ..state.session import CheckSession
from ..writes.gradient_writes import OVERWRITING, content_after
from .judging import judge


@dataclass(frozen=True, slots=True)
class Stretch:
    """Elements ``first`` to before ``last`` of the tensors with these ids, which have one piece each there."""

    first: int
    last: int
    pieces: dict[int, Piece]
    types: dict[int, TensorType]


def parted(op: Op, args: Arguments, kwargs: Keywords, values: Sequence[object]) -> list[Stretch] | None:
    """The stretches in which the operands have one type each; None if all have one and no gradient is kept."""
    tensors = {id(value): value for value in values if isinstance(value, torch.Tensor)}
    first = args[0] if args and op.in_place and isinstance(args[0], torch.Tensor) else None
    if first is not None:  # copy_ has no operand there
        tensors[id(first)] = first
    contents = {key: contents_of(value) for key, value in tensors.items()}
    mixed = [key for key, pieces in contents.items() if len({piece.type for piece in pieces}) > 1]
    if not mixed and len(tensors) == 1 and op.rule.labels is pointwise and not op.rule.view:
        # What is scaled or cast stays the gradient that it is.
        mixed = [key for key, pieces in contents.items() if any(piece.content is not None for piece in pieces)]
    if not mixed:
        return None
    with no_torch_function():
        count = tensors[mixed[0]].numel()
        along = [key for key, value in tensors.items() if value.numel() == count]
    cuts: set[int] = {0, count}
    spans: dict[int, list[tuple[int, int, Piece]]] = {}
    for key in along:
        at = 0
        spans[key] = []
        for piece in contents[key]:
            end = at + (piece.stop - piece.start) // piece.itemsize
            spans[key].append((at, end, piece))
            cuts.add(end)
            at = end
    edges = sorted(cuts)
    stretches = []
    for start, stop in itertools.pairwise(edges):
        pieces = {
            key: piece.within(piece.start + (start - at) * piece.itemsize, piece.start + (stop - at) * piece.itemsize)
            for key, spanned in spans.items()
            for at, end, piece in spanned
            if at <= start < end
        }
        types = {key: _type(tensors[key], piece) for key, piece in pieces.items()}
        stretches.append(Stretch(start, stop, pieces, types))
    return stretches


def _type(x: torch.Tensor, piece: Piece) -> TensorType:
    tag = tag_of(x)
    return piece.type if tag is None else tag.of_pieces([piece])


def run_parted(
    session: CheckSession,
    op: Op,
    func: TorchFunction,
    args: Sequence[object],
    kwargs: Mapping[str, object],
    stretches: Sequence[Stretch],
) -> object:
    """Run a call on memory with pieces: every stretch is judged, refusals are told once for each type."""
    if op.rule.view and not op.in_place:
        return _run_view(session, func, args, kwargs)
    outcomes: dict[tuple[Any, ...], Outcome] = {}
    found = [_judge(session, op, args, kwargs, stretch, outcomes) for stretch in stretches]
    first = args[0] if args else None
    result = func(*args, **kwargs)
    session.checked += any(outcome.checked for outcome in found)
    destination = first if op.in_place and isinstance(first, torch.Tensor) else None
    target = result if destination is None else destination
    if not isinstance(target, torch.Tensor):
        return result
    pieces = [_piece(op, stretch, outcome, destination) for stretch, outcome in zip(stretches, found, strict=True)]
    tag = None if destination is None else adopt_memory(destination)
    with no_torch_function():
        by_element = op.rule.labels is pointwise or op.name in OVERWRITING
        together = by_element and target.numel() == stretches[-1].last and (tag is not None or target.is_contiguous())
    if not together:
        type = joined_type(outcome.type for outcome in found)
        if any(place.is_unknown for place in type.placements) and not any(outcome.refusals for outcome in found):
            session.lose(f"the type of the result of {op.name} on different pieces", user_location())
        set_type(target, type, pieces[0].origin)
    elif is_pieced(target):
        replace_pieces(target, laid_into(target, pieces))
    else:
        set_pieces(target, laid_into(target, pieces), pieces[0].origin, _spec_of([*args, *kwargs.values()], target))
    return result


def _spec_of(values: Sequence[object], result: torch.Tensor) -> PartitionSpec | None:
    """How a result is cut, element by element as operands of its shape are that say it."""
    with no_torch_function():
        alike = [x for x in values if isinstance(x, torch.Tensor) and x.shape == result.shape]
    specs = {spec for x in alike if (spec := type_of(x).spec) is not None}
    return specs.pop() if len(specs) == 1 else None


def _run_view(
    session: CheckSession, func: TorchFunction, args: Sequence[object], kwargs: Mapping[str, object]
) -> object:
    result = func(*args, **kwargs)
    session.checked += 1
    base = args[0] if args else None
    for view in result if isinstance(result, (list, tuple)) else (result,):
        if isinstance(view, torch.Tensor) and isinstance(base, torch.Tensor) and view is not base:
            tag = tag_of(base)
            if tag is not None and same_memory(view, base):
                set_tag(view, Tag(UNKNOWN_TYPE, tag.origin, tag.cell))
            else:  # a reshape that copied
                set_pieces(view, laid_into(view, contents_of(base)), None if tag is None else tag.origin)
    return result


def _judge(
    session: CheckSession,
    op: Op,
    args: Arguments,
    kwargs: Keywords,
    stretch: Stretch,
    outcomes: dict[tuple[object, ...], Outcome],
) -> Outcome:
    key = tuple(stretch.types.items())
    if key not in outcomes:
        operands, values, outcome, blocked = judge(session, op, args, kwargs, stretch.types)
        outcomes[key] = outcome
        if outcome.refusals:
            fact = f"that is so of elements {stretch.first} to {stretch.last - 1}: other elements have other types"
            refuse(session, op.name, op.rule, operands, values, outcome, blocked=blocked, facts=(fact,))
    return outcomes[key]


def _piece(op: Op, stretch: Stretch, outcome: Outcome, destination: torch.Tensor | None) -> Piece:
    """What the stretch of the result is; in bytes of the operand's own."""
    sources = [piece for key, piece in stretch.pieces.items() if destination is None or key != id(destination)]
    own = None if destination is None else stretch.pieces.get(id(destination))
    source = sources[0] if sources else own
    assert source is not None, "a stretch is one of some operand"
    kept = content_after(op.name, own, sources)
    type = local_type(outcome.type)
    # What global types do not say of a bucket is still so of its pieces.
    told = {axis: V for axis in type.axes if type.get(axis).is_unknown and source.type.is_varying(axis)}
    type = type.with_placements(told) if told and not outcome.refusals else type
    if destination is not None and op.name in OVERWRITING and type.ground is Ground.ABSENT and sources:
        type = sources[0].type
    length = stretch.last - stretch.first
    origin = source.origin if own is None or op.name in OVERWRITING or own.type.ground is Ground.ZERO else own.origin
    return Piece(0, length * source.itemsize, type, origin, kept, source.itemsize)
