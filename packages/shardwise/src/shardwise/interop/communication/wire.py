"""How do the bytes travel? Four collectives on contiguous tensors, always along dim 0, each in three ways.

Eagerly through ``torch.distributed``; through functional collectives while ``torch.compile`` traces or when the caller
wants a result that waits at its first use; not at all on a group of one rank. A stand-in set with ``set_dist`` is
always called eagerly.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.distributed
from torch import Tensor

from ..torch_compat import async_tensor, functional_collectives
from . import backend
from .process_groups import Communicator

EAGER, TRACED, DEFERRED = 0, 1, 2
"""How a collective is issued: at once, into a graph that torch.compile traces, or to be waited for at first use."""


def all_reduce(x: Tensor, comm: Communicator, way: int = EAGER, op: str = "sum") -> Tensor:
    """The sum over ranks, or the reduction ``op``, as a new tensor."""
    if comm.size == 1:
        return x.clone(memory_format=torch.contiguous_format)
    if way != EAGER and not backend.is_replaced():
        return _finish(functional_collectives.all_reduce(_real(x.contiguous()), op, comm.name), x, way)
    total = x.clone(memory_format=torch.contiguous_format)
    _all_reduce(total, comm, op)
    return total


def all_reduce_(x: Tensor, comm: Communicator, way: int = EAGER, op: str = "sum") -> Tensor:
    """The sum over ranks, or the reduction ``op``, written into ``x``."""
    if comm.size > 1:
        if way != TRACED and x.is_contiguous():
            _all_reduce(x, comm, op)
        else:
            x.copy_(all_reduce(x, comm, TRACED if way == TRACED else EAGER, op))
    return x


def all_gather(x: Tensor, comm: Communicator, way: int = EAGER) -> Tensor:
    """The ranks' tensors, one after the other along dim 0."""
    if comm.size == 1:
        return x.clone(memory_format=torch.contiguous_format)
    x = x.contiguous()
    if way != EAGER and not backend.is_replaced():
        pending = functional_collectives.all_gather_into_tensor(_real(x), comm.size, comm.name)
        return _finish(pending, x, way)
    shape = x.shape
    whole = x.new_empty((comm.size * shape[0], *shape[1:]))
    backend.all_gather(whole, x, group=comm.group)
    return whole


def reduce_scatter(x: Tensor, comm: Communicator, way: int = EAGER, op: str = "sum") -> Tensor:
    """This rank's piece along dim 0 of the sum over ranks, or of ``op``; the dim is a multiple of their number."""
    if comm.size == 1:
        return x.clone(memory_format=torch.contiguous_format)
    x = x.contiguous()
    if way != EAGER and not backend.is_replaced():
        pending = functional_collectives.reduce_scatter_tensor(_real(x), op, comm.size, comm.name)
        return _finish(pending, x, way)
    shape = x.shape
    piece = x.new_empty((shape[0] // comm.size, *shape[1:]))
    if op == "sum":
        backend.reduce_scatter(piece, x, group=comm.group)
    else:
        backend.reduce_scatter(piece, x, group=comm.group, op=_reduce_op(op))
    return piece


def all_to_all(
    x: Tensor,
    comm: Communicator,
    received: Sequence[int] | None = None,
    sent: Sequence[int] | None = None,
    way: int = EAGER,
) -> Tensor:
    """Piece j along dim 0 goes to rank j. ``received`` and ``sent`` are sizes along dim 0 per rank; None means even."""
    if comm.size == 1:
        return x.clone(memory_format=torch.contiguous_format)
    x = x.contiguous()
    rows = x.shape[0] if received is None else sum(received)
    if way != EAGER and not backend.is_replaced():
        even = [x.shape[0] // comm.size] * comm.size
        pending = functional_collectives.all_to_all_single(
            _real(x), even if received is None else list(received), even if sent is None else list(sent), comm.name
        )
        return _finish(pending, x, way)
    arrived = x.new_empty((rows, *x.shape[1:]))
    backend.current.all_to_all_single(
        arrived, x, None if received is None else list(received), None if sent is None else list(sent), group=comm.group
    )
    return arrived


def _all_reduce(x: Tensor, comm: Communicator, op: str) -> None:
    # The sum is what every back end and every stand-in does without being told.
    if op == "sum":
        backend.current.all_reduce(x, group=comm.group)
    else:
        backend.current.all_reduce(x, group=comm.group, op=_reduce_op(op))


def _reduce_op(op: str) -> object:
    return getattr(torch.distributed.ReduceOp, op.upper())


def _real(x: Tensor) -> Tensor:
    # Functional collectives hand complex tensors to back ends that do not know them.
    return torch.view_as_real(x) if x.is_complex() else x


def _finish(pending: Tensor, x: Tensor, way: int) -> Tensor:
    # Payloads that are tensor subclasses, as in simulations, are never wrapped a second time.
    if way == DEFERRED and not x.is_complex() and type(pending) is Tensor:
        return async_tensor(pending)
    done: Tensor = functional_collectives.wait_tensor(pending)
    return torch.view_as_complex(done) if x.is_complex() else done
