"""In which order do rows stand after a collective? See ``parts/row_orders.py``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from shardwise.mesh.axis import MeshAxis
from shardwise.op_rules.transition_types import parts_of
from shardwise.types.placement import Shard
from shardwise.types.spec import entry_axes
from shardwise.types.tensor_type import TensorType

from ..parts.micro_batches import exchanged as exchanged_batch
from ..parts.row_orders import Order, RowExchange, Sizes, check_gathered, exchanged, order_of
from ..state.session import CheckSession
from .raw_pieces import Exchange

_RECEIVED, _SENT = ("output_split_sizes", "out_splits"), ("input_split_sizes", "in_splits")


def order_after(
    session: CheckSession,
    exchange: Exchange,
    sent: Sequence[torch.Tensor],
    types: Sequence[TensorType],
    given: Mapping[str, object],
) -> Order:
    """The order of the rows that a raw collective leaves; reports pieces that it puts together. Errors: SW223."""
    if len(sent) != 1 or not (session.rows_moved or exchange.row.pieces == "all_to_all"):
        return ()
    exchanged_batch(sent[0])
    before, type = order_of(sent[0]), types[0]
    if exchange.row.pieces == "all_to_all" and _is_cut(type, exchange.axis, 0):
        return exchanged(before, RowExchange(exchange.axis, _sizes(given, _RECEIVED), _sizes(given, _SENT)))
    if exchange.row.name.startswith("all_gather") and check_gathered(session, exchange.name, exchange.axis, sent[0]):
        return ()
    return before if before and before[-1].axis.isorthogonal(exchange.axis) else ()


def order_after_typed(
    session: CheckSession, op: str, axis: MeshAxis, x: torch.Tensor, src: object, dst: object, sizes: Sequence[object]
) -> Order:
    """The same for a typed collective with these ``src`` and ``dst``."""
    if session.local:
        return ()
    exchanged_batch(x)
    before = order_of(x)
    if op == "all_to_all" and isinstance(src, Shard) and src == dst:
        received, sent = [*[_as_sizes(one) for one in sizes], None, None][:2]
        return exchanged(before, RowExchange(axis, received, sent))
    if op in ("all_gather", "all_to_all", "redistribute") and check_gathered(session, op, axis, x):
        return ()
    return before


def _is_cut(type: TensorType, axis: MeshAxis, dim: int) -> bool:
    axes = parts_of(axis, type)
    return bool(axes and type.spec) and all(one in entry_axes(type.spec[dim]) for one in axes if type.spec)


def _sizes(given: Mapping[str, object], names: Sequence[str]) -> Sizes:
    return next((_as_sizes(given[name]) for name in names if given.get(name)), None)


def _as_sizes(value: Any) -> Sizes:
    """None where all are alike, which is what is meant where none are given."""
    sizes = tuple(int(one) for one in value or ())
    return None if len(set(sizes)) < 2 else sizes
