"""Whether the operand's sizes fit the transition: checked before any communication, or a rank would be left waiting.

SW204 if a dim cannot be cut evenly, SW206 if it or the split sizes do not fit the number of ranks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from torch import Tensor

from shardwise.diagnostics.errors import SpmdValueError
from shardwise.interop.communication.own_rank import with_own_rank
from shardwise.interop.communication.process_groups import Communicator
from shardwise.op_rules.transitions import Transition

from . import kernels


class Cut(Protocol):
    """What a check of sizes reads of a recipe."""

    row: Transition
    dim: int
    other_dim: int


def _one_entry_per_rank(x: Tensor, recipe: Cut, comm: Communicator, sizes: object) -> None:
    if x.shape[recipe.dim] != comm.size:
        raise SpmdValueError(
            f"{_call(recipe)} needs one entry per rank along dim {recipe.dim}: "
            f"its size is {x.shape[recipe.dim]}, the axis has {comm.size} ranks",
            code="SW206",
            help=(f"use S({recipe.dim}) in place of V to cut the dim into pieces",),
        )


def _whole_cut(x: Tensor, recipe: Cut, comm: Communicator, sizes: tuple[int, ...] | None) -> None:
    length = x.shape[recipe.dim]
    if sizes is not None:
        _count(sizes, comm)
        if sum(sizes) != length:
            raise SpmdValueError(
                f"split_sizes {list(sizes)} add up to {sum(sizes)}, and dim {recipe.dim} of the operand has {length}",
                code="SW206",
            )
    elif length % comm.size:
        exchanges = recipe.row.op == "all_to_all"  # with split sizes it cuts dim 0, on both sides
        uneven = () if exchanges else (f"split_sizes={_nearly_even(length, comm.size)} to cut it unevenly",)
        raise SpmdValueError(
            f"{_call(recipe)} cannot cut dim {recipe.dim} evenly: "
            f"its size {length} must be a multiple of the {comm.size} ranks of the axis",
            code="SW204",
            help=(*uneven, "or pad the dim" if uneven else "pad the dim"),
        )


def _own_piece(x: Tensor, recipe: Cut, comm: Communicator, sizes: tuple[int, ...] | None) -> None:
    if sizes is not None:
        _count(sizes, comm)
        with_own_rank(x, comm, lambda x, rank: _of_size(x, recipe.dim, sizes, rank))


def _of_size(x: Tensor, dim: int, sizes: Sequence[int], rank: int) -> Tensor:
    if x.shape[dim] != sizes[rank]:
        raise SpmdValueError(
            f"split_sizes {list(sizes)} say that rank {rank} of the axis holds {sizes[rank]} along "
            f"dim {dim}, and its tensor has {x.shape[dim]}",
            code="SW206",
        )
    return x


def _exchanged(x: Tensor, recipe: Cut, comm: Communicator, sizes: Any) -> None:
    if sizes is None:
        _whole_cut(x, recipe, comm, None)
        return
    received, sent = sizes
    _count(received, comm)
    _count(sent, comm)
    if sum(sent) != x.shape[0]:
        raise SpmdValueError(
            f"input_split_sizes {list(sent)} add up to {sum(sent)}, and dim 0 of the operand has {x.shape[0]}",
            code="SW206",
        )


def _count(sizes: Sequence[int], comm: Communicator) -> None:
    if len(sizes) != comm.size or any(size < 0 for size in sizes):
        raise SpmdValueError(
            f"split sizes must be one non-negative size per rank: got {list(sizes)} for {comm.size} ranks",
            code="SW206",
        )


def _nearly_even(length: int, count: int) -> list[int]:
    return [length // count + (rank < length % count) for rank in range(count)]


def _call(recipe: Cut) -> str:
    row = recipe.row
    joined = recipe.other_dim if row.op == "all_to_all" else recipe.dim
    return f"{row.op} {str(row.src).replace('S', f'S({joined})')} -> {str(row.dst).replace('S', f'S({recipe.dim})')}"


Check = Callable[[Tensor, Cut, Communicator, Any], None]

CHECKS: dict[kernels.Kernel, Check] = {
    kernels.own_entry_reduced: _one_entry_per_rank,
    kernels.own_entry: _one_entry_per_rank,
    kernels.exchanged_entries: _one_entry_per_rank,
    kernels.own_piece_reduced: _whole_cut,
    kernels.own_piece: _whole_cut,
    kernels.exchanged_pieces: _exchanged,
    kernels.concatenated: _own_piece,
    kernels.piece_among_zeros: _own_piece,
}
"""What each kernel asks of its operand, called as check(x, recipe, communicator, split sizes)."""
