"""What does a raw collective leave in the tensors that receive? One type, or one for every piece of their memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from shardwise.diagnostics.source import user_location
from shardwise.interop.autograd.gradient_content import contents_of
from shardwise.interop.autograd.gradient_origin import beginning
from shardwise.interop.tensors.derived_types import writes
from shardwise.interop.tensors.memory_pieces import Piece, laid_into, region_of
from shardwise.interop.tensors.own_references import by_tensor
from shardwise.interop.tensors.tagging import (
    Origin,
    is_pieced,
    local_type,
    pieces_of,
    set_part,
    set_pieces,
    set_type,
    type_of,
)
from shardwise.interop.torch_compat import no_torch_function
from shardwise.types.tensor_type import UNKNOWN_TYPE, Ground, TensorType

from ..state.session import CheckSession
from ..writes.gradient_writes import is_part
from .raw_pieces import Exchange, own_chunk

Received = Callable[[TensorType | None], TensorType | None]
"""From the type of what was sent to that of what is received."""


@dataclass(frozen=True, slots=True)
class Receipt:
    """What will be in ``tensor``: a type (None: what it had), and the pieces where there are several."""

    tensor: torch.Tensor
    type: TensorType | None
    origin: Origin
    pieces: Sequence[Piece] = ()

    def forget(self) -> None:
        """Nothing is known of the tensor until ``take_place``."""
        if self.pieces or (self.type is not None and is_part(self.tensor)):
            set_part(self.tensor, UNKNOWN_TYPE, self.origin)
        elif self.type is not None:
            writes(self.tensor)
            set_type(self.tensor, UNKNOWN_TYPE, self.origin)

    def take_place(self) -> None:
        tensor, type = self.tensor, self.type
        if self.pieces:
            set_pieces(tensor, self.pieces, self.origin, None if type is None else type.spec)
        elif type is not None and type is not type_of(tensor) and is_part(tensor):
            # The rest of the memory is still what it was.
            set_part(tensor, type, self.origin, contents_of(tensor))
        elif type is not None:
            writes(tensor)
            set_type(tensor, type, self.origin)


def receipt(
    session: CheckSession,
    tensor: torch.Tensor,
    base: TensorType | None,
    exchange: Exchange,
    sent: Sequence[torch.Tensor],
    origin: Origin,
    received: Received,
) -> Receipt:
    """What will be in a received tensor, where ``base`` is the type of what was ``sent``."""
    type = received(base)
    if not sent or (type is None and not is_pieced(tensor)):
        return Receipt(tensor, type, origin)
    if exchange.row.sent == exchange.row.received:
        source = pieces_of(tensor)
    elif exchange.row.pieces == "reduce_scatter" and len(sent) == 1 and is_pieced(sent[0]):
        source = laid_into(tensor, own_chunk(whole := contents_of(sent[0]), exchange))
        with no_torch_function():
            _cut[tensor] = whole
    elif (again := _gathered_again(tensor, exchange, sent)) is not None:
        source = laid_into(tensor, again)
    else:
        if type is not None and is_pieced(sent[0]) and _is_blurred(type, sent[0]):
            session.lose(f"the type of what {exchange.name} makes of different pieces", user_location())
        return Receipt(tensor, type, origin)
    return Receipt(tensor, type, origin, [_after(piece, origin, received) for piece in source])


_cut: Any = by_tensor()
"""For this rank's part of a bucket that a reduction has cut: the pieces of all of it."""


def _gathered_again(tensor: torch.Tensor, exchange: Exchange, sent: Sequence[torch.Tensor]) -> list[Piece] | None:
    """The pieces of a bucket whose parts are put together again, if this rank's part still is what it got of it."""
    if exchange.row.pieces != "all_gather" or len(sent) != 1 or not is_pieced(sent[0]):
        return None
    (own,) = sent
    with no_torch_function():
        whole = _cut.get(own)
        if whole is None or region_of(tensor) is None or tensor.numel() != exchange.axis.size() * own.numel():
            return None
    found, wanted = contents_of(own), laid_into(own, own_chunk(whole, exchange))
    alike = len(found) == len(wanted) and all(
        one.content is None if other.content is None else one.content is not None and other.content.is_same(one.content)
        for one, other in zip(found, wanted, strict=True)
    )
    types = {piece.type for piece in found if not piece.type.ground.is_constant}
    if not alike or len(types) != 1:
        return None
    type = types.pop()
    return [piece if piece.type.ground.is_constant else replace(piece, type=type) for piece in whole]


def _after(piece: Piece, origin: Origin, received: Received) -> Piece:
    if not piece.type.axes or piece.type.ground is not Ground.ABSENT:
        return piece
    type = received(piece.type)
    if type is None:
        return piece
    return replace(piece, type=local_type(type), origin=Origin(origin.site, origin.text, beginning(piece.origin)))


def _is_blurred(type: TensorType, sent: torch.Tensor) -> bool:
    """True if ``type`` says nothing along an axis on which every piece of ``sent`` has a placement."""
    pieces = pieces_of(sent)
    return any(
        place.is_unknown and all(axis in piece.type and not piece.type.get(axis).is_unknown for piece in pieces)
        for axis, place in zip(type.axes, type.placements, strict=True)
    )
