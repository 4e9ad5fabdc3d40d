"""Pieces that a raw collective has put into a list: which piece of the whole each is, and along which dim.

What is computed of a piece is that piece of what is computed of the whole, wherever the operator would take a shard in
its place. So every operator is asked about the piece as if it were the shard; where it refuses, nothing is remembered.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from shardwise.diagnostics.errors import SpmdTypeError
from shardwise.interop.tensors.containers import tensors_in
from shardwise.interop.tensors.own_references import by_tensor
from shardwise.interop.tensors.tagging import type_of
from shardwise.interop.torch_call import Arguments, Keywords
from shardwise.interop.torch_compat import no_torch_function
from shardwise.mesh.axis import MeshAxis
from shardwise.op_rules.transition_types import landed, parts_of
from shardwise.types.placement import Shard, V
from shardwise.types.spec import entry_axes, partition_spec_get_shard
from shardwise.types.tensor_type import TensorType

from ..call.arguments import Op
from ..parts.micro_batches import following_batches
from ..parts.row_orders import following
from ..state.session import CheckSession
from .judging import UnreadableArguments, judge
from .merged_rows import is_ordered

Memory = tuple[int, tuple[int, ...], TensorType]
"""Where a tensor's numbers are, its shape and its type."""


@dataclass(frozen=True, slots=True, eq=False)
class PieceList:
    """The ``count`` pieces that a call of ``op`` has left on this rank, of a tensor that was sharded over ``axis``.

    ``own``   the number of this rank's piece.
    ``sent``  where that has been gathered from.
    """

    op: str
    axis: MeshAxis
    count: int
    own: int
    sent: Memory | None = None


@dataclass(frozen=True, slots=True)
class ListedPiece:
    """Piece ``number`` along ``dim``; ``computed``: what has been done to the pieces of ``source`` since."""

    source: PieceList
    number: int
    dim: int
    computed: tuple[object, ...] = ()


_pieces: Any = by_tensor()


def piece_of(x: torch.Tensor) -> ListedPiece | None:
    """Which piece ``x`` is; None if it is none, or nobody knows."""
    with no_torch_function():
        found: ListedPiece | None = _pieces.get(x)
    return found


def are_any() -> bool:
    """True while some tensor is a piece."""
    return len(_pieces) > 0


def memory_of(x: torch.Tensor) -> Memory:
    """Where ``x`` is; the same of what ``detach`` makes of it."""
    with no_torch_function():
        return x.data_ptr(), tuple(x.shape), type_of(x)


def note_piece(session: CheckSession, x: torch.Tensor, piece: ListedPiece | None) -> None:
    """Remember which piece ``x`` is."""
    with no_torch_function():
        if piece is not None:
            session.rows_moved |= not session.local
            _pieces[x] = piece
        else:
            _pieces.pop(x, None)


def handing_on(session: CheckSession, op: Op, run: Callable[[], object], args: Arguments, kwargs: Keywords) -> object:
    """``run()`` of an operator, whose results have the order of its operands, and are pieces where these are."""
    pieces = [(x, piece) for x in tensors_in((*args, *kwargs.values())) if (piece := piece_of(x)) is not None]
    if is_ordered(op, args):
        return run()  # the order is handed on with the type
    if not pieces:
        ordered = functools.partial(following, session, op.name, run, args, kwargs)
        return following_batches(session, op.rule.op, ordered, args, kwargs)
    made = _made(session, op, pieces, args, kwargs)
    result = following(session, op.name, run, args, kwargs)
    for at, tensor in enumerate(tensors_in(result)):
        note_piece(session, tensor, made[at if len(made) > 1 else 0] if at < len(made) or len(made) == 1 else None)
    return result


def _made(
    session: CheckSession, op: Op, pieces: list[tuple[torch.Tensor, ListedPiece]], args: Arguments, kwargs: Keywords
) -> list[ListedPiece | None]:
    """For every result the piece that it is; a single one stands for all."""
    first = pieces[0][1]
    axis = first.source.axis
    if any(piece.number != first.number or piece.source.axis != axis for _, piece in pieces):
        return [None]
    types = {id(x): _as_shard(type_of(x), axis, piece.dim, x) for x, piece in pieces}
    try:
        _, _, outcome, _ = judge(session, op, args, kwargs, types)
    except (UnreadableArguments, SpmdTypeError):
        return [None]
    if outcome.refusals:
        return [None]
    made: list[ListedPiece | None] = []
    for at, type in enumerate(outcome.results or (outcome.type,)):
        dim = dim_cut_over(type, parts_of(axis, type))
        computed = (*first.computed, op.name, at)
        made.append(None if dim is None else ListedPiece(first.source, first.number, dim, computed))
    return made


def dim_cut_over(type: TensorType, axes: tuple[MeshAxis, ...]) -> int | None:
    """The dim that is sharded over these axes, in this order; None if there is none."""
    shard = None if not axes else partition_spec_get_shard(type.spec, axes[0])
    if shard is None or type.spec is None:
        return None
    return shard.dim if tuple(one for one in entry_axes(type.spec[shard.dim]) if one in axes) == axes else None


def _as_shard(type: TensorType, axis: MeshAxis, dim: int, x: torch.Tensor) -> TensorType:
    axes = parts_of(axis, type) or (axis,)
    with no_torch_function():
        spec = landed(type.spec, x.ndim, axes, Shard(dim))
    places = {**{one: type.get(one) for one in type.axes}, **dict.fromkeys(axes, V)}
    return TensorType.of(places, spec, uneven=type.uneven)
