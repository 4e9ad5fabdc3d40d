"""What each transition does to the local tensor: one function per effect, shared by those with the same effect.

A kernel takes (x, comm, plan, sizes): ``plan.dim`` is the tensor dim it acts on (for all_to_all the dim that is split),
``plan.other_dim`` where all_to_all puts what arrives, ``sizes`` the ranks' uneven sizes along the dim (for all_to_all
a pair: received, sent) or None. Sizes have been checked before.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor

from shardwise.interop.communication import wire
from shardwise.interop.communication.own_rank import with_own_rank
from shardwise.interop.communication.process_groups import Communicator


class Effect(Protocol):
    """What a kernel reads of a recipe."""

    dim: int
    other_dim: int
    way: int
    reduction: str


Kernel = Callable[[Tensor, Communicator, Any, Any], Tensor]


def identity(x: Tensor, comm: Communicator, plan: Effect, sizes: object) -> Tensor:
    """The same bits under another name."""
    return x


def reduced(x: Tensor, comm: Communicator, plan: Effect, sizes: object) -> Tensor:
    """The sum over ranks, or another reduction."""
    return wire.all_reduce(x, comm, plan.way, plan.reduction)


def stacked(x: Tensor, comm: Communicator, plan: Effect, sizes: object) -> Tensor:
    """The ranks' tensors, stacked along a new dim."""
    whole = wire.all_gather(x.unsqueeze(0), comm, _way(plan, plan.dim == 0))
    return whole if plan.dim == 0 else whole.movedim(0, plan.dim).contiguous()


def concatenated(x: Tensor, comm: Communicator, plan: Effect, sizes: Sequence[int] | None) -> Tensor:
    """The ranks' tensors, one after the other along a dim."""
    dim = plan.dim
    if sizes is not None:
        # Padded to the largest piece: one collective that every back end has, whatever the sizes.
        longest = max(sizes)
        padded = x.new_zeros((*x.shape[:dim], longest, *x.shape[dim + 1 :]))
        padded.narrow(dim, 0, x.shape[dim]).copy_(x)
        pieces = wire.all_gather(padded.unsqueeze(0), comm, _way(plan, False)).unbind(0)
        return torch.cat([piece.narrow(dim, 0, size) for piece, size in zip(pieces, sizes, strict=True)], dim)
    if dim == 0:
        return wire.all_gather(x, comm, plan.way)
    return _join(wire.all_gather(x.unsqueeze(0), comm, _way(plan, False)), dim)


def own_entry_reduced(x: Tensor, comm: Communicator, plan: Effect, sizes: object) -> Tensor:
    """This rank's entry along a dim with one entry per rank, of the reduction; the dim is dropped."""
    return wire.reduce_scatter(x.movedim(plan.dim, 0), comm, plan.way, plan.reduction).squeeze(0)


def own_piece_reduced(x: Tensor, comm: Communicator, plan: Effect, sizes: Sequence[int] | None) -> Tensor:
    """This rank's piece along a dim, of the reduction."""
    dim = plan.dim
    if sizes is not None:
        padded = x.new_zeros((comm.size, *x.shape[:dim], max(sizes), *x.shape[dim + 1 :]))
        for slot, piece, size in zip(padded.unbind(0), torch.split(x, list(sizes), dim), sizes, strict=True):
            slot.narrow(dim, 0, size).copy_(piece)
        own = wire.reduce_scatter(padded, comm, _way(plan, False), plan.reduction).squeeze(0)
        return with_own_rank(own, comm, lambda own, rank: own.narrow(dim, 0, sizes[rank]).contiguous())
    if dim == 0:
        return wire.reduce_scatter(x, comm, plan.way, plan.reduction)
    return wire.reduce_scatter(_cut(x, dim, comm.size), comm, plan.way, plan.reduction).squeeze(0)


def exchanged_entries(x: Tensor, comm: Communicator, plan: Effect, sizes: object) -> Tensor:
    """Entry j along ``dim`` goes to rank j; what arrives is stacked along ``other_dim``."""
    arrived = wire.all_to_all(x.movedim(plan.dim, 0), comm, way=_way(plan, plan.other_dim == 0))
    return arrived if plan.other_dim == 0 else arrived.movedim(0, plan.other_dim).contiguous()


def exchanged_pieces(x: Tensor, comm: Communicator, plan: Effect, sizes: Any) -> Tensor:
    """Piece j along ``dim`` goes to rank j; what arrives is joined along ``other_dim``."""
    way = _way(plan, plan.other_dim == 0)
    if sizes is not None:
        return wire.all_to_all(x, comm, sizes[0], sizes[1], way)
    if plan.dim == 0 and plan.other_dim == 0:
        return wire.all_to_all(x, comm, way=way)
    return _join(wire.all_to_all(_cut(x, plan.dim, comm.size), comm, way=way), plan.other_dim)


def own_entry(x: Tensor, comm: Communicator, plan: Effect, sizes: object) -> Tensor:
    """This rank's entry along a dim with one entry per rank, as a copy; the dim is dropped."""
    return with_own_rank(x, comm, lambda x, rank: x.select(plan.dim, rank).clone(memory_format=torch.contiguous_format))


def own_piece(x: Tensor, comm: Communicator, plan: Effect, sizes: Sequence[int] | None) -> Tensor:
    """This rank's piece along a dim, as a copy."""

    def own(x: Tensor, rank: int) -> Tensor:
        start, size = _own_span(x.shape[plan.dim], comm.size, rank, sizes)
        return x.narrow(plan.dim, start, size).clone(memory_format=torch.contiguous_format)

    return with_own_rank(x, comm, own)


def entry_among_zeros(x: Tensor, comm: Communicator, plan: Effect, sizes: object) -> Tensor:
    """A new dim with one entry per rank: this rank's is ``x``, the others are zero."""

    def own(x: Tensor, rank: int) -> Tensor:
        whole = x.new_zeros((*x.shape[: plan.dim], comm.size, *x.shape[plan.dim :]))
        whole.select(plan.dim, rank).copy_(x)
        return whole

    return with_own_rank(x, comm, own)


def piece_among_zeros(x: Tensor, comm: Communicator, plan: Effect, sizes: Sequence[int] | None) -> Tensor:
    """The whole size along a dim: this rank's piece is ``x``, the others are zero."""
    dim = plan.dim

    def own(x: Tensor, rank: int) -> Tensor:
        total = x.shape[dim] * comm.size if sizes is None else sum(sizes)
        start, size = _own_span(total, comm.size, rank, sizes)
        whole = x.new_zeros((*x.shape[:dim], total, *x.shape[dim + 1 :]))
        whole.narrow(dim, start, size).copy_(x)
        return whole

    return with_own_rank(x, comm, own)


def first_rank_only(x: Tensor, comm: Communicator, plan: Effect, sizes: object) -> Tensor:
    """The value on rank 0 of the axis, zeros elsewhere. A copy on every rank, so that ranks alias alike."""
    return with_own_rank(x, comm, lambda x, rank: x.clone() if rank == 0 else torch.zeros_like(x))


def _way(plan: Effect, as_it_arrives: bool) -> int:
    """How to issue the collective: a result that has to be laid out anew is needed at once."""
    return wire.EAGER if plan.way == wire.DEFERRED and not as_it_arrives else plan.way


def _own_span(total: int, count: int, rank: int, sizes: Sequence[int] | None) -> tuple[int, int]:
    if sizes is None:
        size = total // count
        return rank * size, size
    return sum(sizes[:rank]), sizes[rank]


def _cut(x: Tensor, dim: int, count: int) -> Tensor:
    """[.., n * m, ..] to [n, .., m, ..]."""
    return x.reshape(*x.shape[:dim], count, x.shape[dim] // count, *x.shape[dim + 1 :]).movedim(dim, 0)


def _join(pieces: Tensor, dim: int) -> Tensor:
    """[n, .., m, ..] to [.., n * m, ..], ``dim`` counted without the leading one."""
    return pieces.flatten(0, 1) if dim == 0 else pieces.movedim(0, dim).flatten(dim, dim + 1).contiguous()


_REDUCED = ("P", "V", "P(max)", "P(min)")
KERNELS: dict[tuple[str, str, str], Kernel] = {
    **{("all_reduce", src, dst): reduced for src in _REDUCED for dst in "RI"},
    **{("all_gather", "V", dst): stacked for dst in "RI"},
    **{("all_gather", "S", dst): concatenated for dst in "RI"},
    **{("reduce_scatter", src, "V"): own_entry_reduced for src in _REDUCED},
    **{("reduce_scatter", src, "S"): own_piece_reduced for src in _REDUCED},
    **{("all_to_all", src, dst): exchanged_pieces for src, dst in ("SS", "SV", "VS")},
    ("all_to_all", "V", "V"): exchanged_entries,
    **{("convert", src, "V"): own_entry for src in "RI"},
    **{("convert", src, "S"): own_piece for src in "RI"},
    **{("convert", src, "P"): first_rank_only for src in "RI"},
    ("convert", "V", "P"): entry_among_zeros,
    ("convert", "S", "P"): piece_among_zeros,
}
"""The effect of each transition; one that is not listed has no effect on the local tensor."""
