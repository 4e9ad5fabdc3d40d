"""Pieces of another dim that ``all_gather_into_tensor`` has put behind one another along dim 0: no tensor that one
device has, until they are taken apart and joined along their dim.

dist.all_gather_into_tensor(buffer, x)          x f32[4, 2@tp], buffer f32[8, 2]: refused, SW212
torch.cat(buffer.chunk(2, 0), dim=-1)           the whole, f32[4, 4] {tp: R}: the finding is withdrawn

As Megatron gathers along the last dim. From there on they are pieces in a list, and a wrong ``cat`` is SW223.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from shardwise.diagnostics.finding import Finding
from shardwise.diagnostics.source import user_location
from shardwise.interop.tensors.tagging import Origin, Tag, set_tag
from shardwise.interop.torch_compat import no_torch_function
from shardwise.op_rules.transition_types import parts_of
from shardwise.types.placement import R
from shardwise.types.tensor_type import UNKNOWN_TYPE, TensorType

from ..operators.listed_pieces import ListedPiece, PieceList, dim_cut_over, note_piece
from ..state.session import CheckSession
from .raw_pieces import Exchange


@dataclass(frozen=True, slots=True, eq=False)
class StackedRows:
    """What ``exchange`` has gathered of a tensor of ``type``, and the findings that say so."""

    exchange: Exchange
    type: TensorType
    origin: Origin
    findings: Sequence[Finding]

    def take_apart(self, session: CheckSession, buffer: torch.Tensor, pieces: Sequence[torch.Tensor], dim: int) -> bool:
        """True if these parts of ``buffer`` along ``dim`` are what each rank has sent; then they are typed so.

        Nothing is known of the buffer as a whole from there on, and that is listed.
        """
        axis, type = self.exchange.axis, self.type
        axes = parts_of(axis, type)
        own = dim_cut_over(type, axes)
        with no_torch_function():
            even = len({piece.shape for piece in pieces}) == 1
        if dim != 0 or own is None or len(pieces) != axis.size() or not even or session.collector is None:
            return False
        session.collector.withdraw(self.findings)
        session.lose(f"the type of all that {self.exchange.name} has put together along another dim", user_location())
        set_tag(buffer, Tag(UNKNOWN_TYPE))
        source = PieceList(self.exchange.name, axis, len(pieces), self.exchange.rank)
        for rank, piece in enumerate(pieces):
            set_tag(piece, Tag(type.with_placements(dict.fromkeys(axes, R)), self.origin))
            note_piece(session, piece, ListedPiece(source, rank, own))
        return True
