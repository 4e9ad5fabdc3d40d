"""Raw collectives on the pieces of a sharded tensor: which are refused, and the spec of the result.

Pieces are neither addends nor candidates, so they are not reduced. They are put together along dim 0, or stacked on a
new one, which is honest about being a list; a functional collective says along which dim (``rearranging``). What is cut
is cut along dim 0 too. An exchange of pieces of dim 0 leaves pieces of dim 0, of the same rows in another order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.distributed as dist

from shardwise.diagnostics.finding import Diagnosis
from shardwise.interop.calls.located_call import axis_text
from shardwise.interop.tensors.memory_pieces import Piece
from shardwise.interop.torch_compat import group_named
from shardwise.mesh.axis import MeshAxis
from shardwise.mesh.entry import current_entry
from shardwise.mesh.normalize import axis_argument
from shardwise.op_rules.raw_collectives import RawCollective, Reducer
from shardwise.op_rules.transition_types import TransitionCall, parts_of, spec_after, type_after
from shardwise.op_rules.transitions import REDUCTIONS
from shardwise.types.placement import P, PerMeshAxisSpmdType, R, Shard, V
from shardwise.types.spec import PartitionSpec, entry_axes, partition_spec_get_shard
from shardwise.types.tensor_type import TensorType

from ..parts.own_parts import WholeCut, pieces_of_cut
from ..state.numbers import TYPED_NUMBERS

_SIZES = ("output_split_sizes", "input_split_sizes", "out_splits", "in_splits")


@dataclass(frozen=True, slots=True)
class Exchange:
    """One raw collective on one tensor: ``dim`` is the dim that it gathers or cuts, ``received`` its result's shape.

    ``ragged``  the ranks are given pieces of different sizes.
    ``reducer`` the reduction that it makes, if any.
    ``passed_on``  a message whose receiver is counted from the sender's own rank, as in a ring.
    ``rank``    which of the pieces is this rank's.
    ``cut``     the dim along which the pieces that it sends are all of one tensor, one for each rank in their order.
    """

    row: RawCollective
    name: str
    axis: MeshAxis
    dim: int = 0
    received: tuple[int, ...] | None = None
    ragged: bool = False
    reducer: Reducer | None = None
    rank: int = 0
    passed_on: bool = False
    cut: int | None = None

    def stacks(self, sent: int) -> bool:
        """True if the result has one dim more or less than what was sent, with ``sent`` dims: one entry per rank."""
        return self.received is not None and len(self.received) != sent


def exchange_of(
    row: RawCollective, name: str, axis: MeshAxis, given: Mapping[str, Any], dim: int, reducer: Reducer | None = None
) -> Exchange:
    """The call with these arguments, whose result is along ``dim`` what rows say of dim 0."""
    into = given.get(row.received) if row.received != row.sent else None
    shape = tuple(into.shape) if isinstance(into, torch.Tensor) else None
    sizes = [given[key] for key in _SIZES if isinstance(given.get(key), (list, tuple))]
    group = given.get("group") or given.get("group_name")
    rank = dist.get_rank(group_named(group) if isinstance(group, str) else group)
    passed_on = any(given.get(key).__class__ in TYPED_NUMBERS for key in ("dst", "group_dst"))
    ragged = any(len(set(each)) > 1 for each in sizes)
    return Exchange(row, name, axis, dim, shape, ragged, reducer, max(rank, 0), passed_on, _cut_of(row, given, axis))


def _cut_of(row: RawCollective, given: Mapping[str, Any], axis: MeshAxis) -> int | None:
    found = sent_cut(row, given)
    if found is None or found[1] != list(range(axis.size())) or not found[0].even:
        return None
    return found[0].dim


def sent_cut(row: RawCollective, given: Mapping[str, object]) -> tuple[WholeCut, list[int]] | None:
    """Of a call that is given a piece for each rank: the numbers of the pieces, if they are all of one tensor."""
    sent = given.get(row.sent) if row.name in ("all_to_all", "reduce_scatter") else None
    return pieces_of_cut(sent) if isinstance(sent, (list, tuple)) else None


def own_chunk(pieces: Sequence[Piece], exchange: Exchange) -> list[Piece]:
    """Of the pieces of a buffer that is cut evenly, those that this rank gets."""
    count = sum((piece.stop - piece.start) // piece.itemsize for piece in pieces) // exchange.axis.size()
    first, last, at, own = exchange.rank * count, (exchange.rank + 1) * count, 0, []
    for piece in pieces:
        end = at + (piece.stop - piece.start) // piece.itemsize
        low, high = max(first, at), min(last, end)
        if low < high:
            own.append(piece.within(*(piece.start + (edge - at) * piece.itemsize for edge in (low, high))))
        at = end
    return own


def refused_pieces(exchange: Exchange, name: str, type: TensorType, ndim: int) -> Diagnosis | None:
    """Why the pieces of the tensor called ``name`` must not be exchanged like this; None if they may."""
    axes = parts_of(exchange.axis, type)
    dims = [shard.dim for one in axes if (shard := partition_spec_get_shard(type.spec, one)) is not None]
    if not dims or _local_axes() & set(axes):
        return None
    known, op, along = max(dims), exchange.name, axis_text(exchange.axis)
    whole = f"all_gather({name}, {axis_argument(exchange.axis)}, src=S({known}), dst=R) for all of it"
    if exchange.row.pieces in REDUCTIONS:
        return Diagnosis(
            "SW201",
            f"{op} would make one value out of the pieces of {name}, which is sharded on dim {known} over {along}",
            (),
            (whole,),
        )
    if exchange.row.pieces != "all_gather" or exchange.stacks(ndim):
        return None
    if known != exchange.dim:
        return Diagnosis(
            "SW212",
            f"{op} puts pieces together along dim {exchange.dim}, but {name} is sharded on dim {known} over {along}",
            (),
            (whole,),
        )
    refusal = type_after(TransitionCall("all_gather", exchange.axis, axes, Shard(known), R, ndim, op), type).refusal
    if refusal is None:
        return None
    ways = tuple(way.replace("(...,", f"({name},") for way in refusal.help)
    return replace(refusal, message=f"{name}: {refusal.message}", help=ways)


def received_spec(exchange: Exchange, before: TensorType, ndim: int, sent_ndim: int) -> PartitionSpec | None:
    """The spec of a result with ``ndim`` dims, where what was sent has ``sent_ndim`` dims and the type ``before``."""
    axes = parts_of(exchange.axis, before) or (exchange.axis,)
    pieces, dim = exchange.row.pieces, Shard(exchange.dim)
    src: PerMeshAxisSpmdType
    dst: PerMeshAxisSpmdType
    if ndim == sent_ndim + 1:
        op, src, dst = "all_gather", V, R  # stacked, whatever the pieces are
    elif ndim != sent_ndim:
        return None
    elif exchange.cut is not None and exchange.reducer is not None:
        op, src, dst = "reduce_scatter", P, Shard(exchange.cut)
    elif pieces == "reduce_scatter":
        op, src, dst = pieces, P, dim
    elif exchange.cut is not None and before.spec and not set(axes) & set(entry_axes(before.spec[exchange.cut])):
        op, src, dst = "all_to_all", V, Shard(exchange.cut)
    elif pieces == "all_to_all" and before.spec and all(axis in entry_axes(before.spec[0]) for axis in axes):
        op, src, dst = pieces, dim, dim
    else:
        op, src, dst = "all_reduce", P, R
    step = TransitionCall(op, exchange.axis, axes, src, dst, sent_ndim, exchange.name)
    return spec_after(step, before.spec, cuts=sent_ndim > 0 and not _local_axes() & set(axes))


def uneven_after(exchange: Exchange, before: TensorType) -> frozenset[MeshAxis]:
    """The axes over which shards of the result may differ in length."""
    axes = set(parts_of(exchange.axis, before) or (exchange.axis,))
    return frozenset((before.uneven - axes) | (axes if exchange.ragged else set()))


def _local_axes() -> frozenset[MeshAxis]:
    mesh = current_entry()
    return frozenset() if mesh is None else mesh.local_axes
