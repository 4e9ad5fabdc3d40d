"""What does a raw ``torch.distributed`` collective do to types? Data, one row per function.

``tensors`` names the parameter whose tensor is sent, ``results`` the one that receives (the same one for in-place
collectives; empty for functional ones, which return a new tensor). ``admits`` are the placements that the sent tensor
may have, ``gives`` is what the result is afterwards. A reduction other than a sum has its own row key, ``name/other``.
Source: the documentation of torch.distributed.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass


class Pieces(enum.Enum):
    """What a collective does to tensors that are the pieces of one."""

    KEPT = "kept"
    """Nothing that a partition spec could tell: they are handed on one by one."""
    MIXED = "mixed"
    """It makes one value of all."""
    JOINED = "joined"
    """It puts them together along dim 0."""
    CUT = "cut"
    """Its result is a piece, cut along dim 0."""
    EXCHANGED = "exchanged"
    """It cuts them along dim 0 and joins what arrives along dim 0."""


_PIECES = {
    "all_reduce": Pieces.MIXED, "reduce": Pieces.MIXED, "broadcast": Pieces.MIXED, "all_reduce_": Pieces.MIXED,
    "all_reduce_coalesced": Pieces.MIXED, "all_gather_into_tensor": Pieces.JOINED, "all_gather_single": Pieces.JOINED,
    "reduce_scatter_tensor": Pieces.CUT, "reduce_scatter_single": Pieces.CUT, "all_to_all_single": Pieces.EXCHANGED,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class RawRow:
    """One raw collective. ``params`` are its positional parameters in order; ``functional``: it returns its result."""

    name: str
    params: str
    sent: str
    received: str
    admits: str
    gives: str
    law: str
    functional: bool = False

    @property
    def pieces(self) -> Pieces:
        """What it does to the pieces of a sharded tensor."""
        return _PIECES.get(self.name.removesuffix("/other"), Pieces.KEPT)


RAW_ROWS: tuple[RawRow, ...] = (
    RawRow("all_reduce", "tensor op group", "tensor", "tensor", "PV", "R", "the sum of the addends, on every rank"),
    RawRow("all_reduce/other", "tensor op group", "tensor", "tensor", "VRI", "R", "one value from all, on every rank"),
    RawRow("all_gather", "tensor_list tensor group", "tensor", "tensor_list", "VRI", "R", "all pieces, on every rank"),
    RawRow("all_gather_into_tensor", "output_tensor input_tensor group", "input_tensor", "output_tensor", "VRI", "R",
           "all pieces, on every rank"),
    RawRow("all_gather_single", "output_tensor input_tensor group", "input_tensor", "output_tensor", "VRI", "R",
           "all pieces, on every rank"),
    RawRow("reduce_scatter", "output input_list op group", "input_list", "output", "PV", "V", "a piece of the sum"),
    RawRow("reduce_scatter_tensor", "output input op group", "input", "output", "PV", "V", "a piece of the sum"),
    RawRow("reduce_scatter_single", "output input op group", "input", "output", "PV", "V", "a piece of the sum"),
    RawRow("reduce_scatter/other", "output input op group", "input", "output", "VRI", "V", "a piece of the maximum"),
    RawRow("all_to_all", "output_tensor_list input_tensor_list group", "input_tensor_list", "output_tensor_list", "VRI",
           "V", "pieces exchanged"),
    RawRow("all_to_all_single", "output input output_split_sizes input_split_sizes group", "input", "output", "VRI",
           "V", "pieces exchanged"),
    RawRow("broadcast", "tensor src group", "tensor", "tensor", "VRI", "R", "one rank's value, on every rank"),
    RawRow("reduce", "tensor dst op group", "tensor", "tensor", "PV", "V", "only one rank has the sum"),
    RawRow("gather", "tensor gather_list dst group", "tensor", "gather_list", "VRI", "V", "one rank has the pieces"),
    RawRow("scatter", "tensor scatter_list src group", "scatter_list", "tensor", "VRI", "V", "one piece each"),
    RawRow("send", "tensor dst group", "tensor", "", "VRI", "", "nothing is received here"),
    RawRow("isend", "tensor dst group", "tensor", "", "VRI", "", "nothing is received here"),
    RawRow("recv", "tensor src group", "", "tensor", "", "V", "what one other rank sent"),
    RawRow("irecv", "tensor src group", "", "tensor", "", "V", "what one other rank sent"),
    RawRow("all_reduce_coalesced", "tensors op group", "tensors", "tensors", "PV", "R", "sums, on every rank"),
    RawRow("all_reduce_coalesced/other", "tensors op group", "tensors", "tensors", "VRI", "R", "one value from all"),
)  # fmt: skip

FUNCTIONAL_ROWS: tuple[RawRow, ...] = (
    RawRow("all_reduce", "input op group", "input", "", "PV", "R", "the sum, on every rank", functional=True),
    RawRow("all_reduce/other", "input op group", "input", "", "VRI", "R", "one value from all", functional=True),
    RawRow("all_reduce_", "input op group", "input", "input", "PV", "R", "the sum, on every rank"),
    RawRow("all_gather_into_tensor", "input size group", "input", "", "VRI", "R", "all pieces", functional=True),
    RawRow("reduce_scatter_tensor", "input op size group", "input", "", "PV", "V", "a piece of it", functional=True),
    RawRow("all_to_all_single", "input out_splits in_splits group", "input", "", "VRI", "V", "pieces exchanged",
           functional=True),
    RawRow("broadcast", "input src group", "input", "", "VRI", "R", "one rank's value", functional=True),
)  # fmt: skip

RAW: dict[str, RawRow] = {row.name: row for row in RAW_ROWS}
FUNCTIONAL: dict[str, RawRow] = {row.name: row for row in FUNCTIONAL_ROWS}
