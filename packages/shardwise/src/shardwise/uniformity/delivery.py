"""How do values get from one rank to another in a job whose collectives are inert? By way of the process that compares.

Only small values travel: flags, counts, sizes, sums of a few numbers. They decide what a program does next; the others
are only computed with, and the fake backend's answer will do.
"""

from __future__ import annotations

import contextlib
import pickle
from collections.abc import Callable, Mapping, Sequence

import torch

from shardwise.interop.running.session import current, paused
from shardwise.interop.tensors.parcels import packed
from shardwise.interop.torch_compat import is_fake, no_torch_function

from .c10d_calls import Pieces, Reading

LIMIT_BYTES = 1 << 16
"""What one rank hands to one collective, at most, for its values to be delivered."""

_REDUCTIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "sum": lambda values: values.sum(0, dtype=values.dtype),
    "avg": lambda values: values.mean(0),
    "product": lambda values: values.prod(0, dtype=values.dtype),
    "min": lambda values: values.amin(0),
    "max": lambda values: values.amax(0),
    "band": lambda values: _folded(torch.bitwise_and, values),
    "bor": lambda values: _folded(torch.bitwise_or, values),
    "bxor": lambda values: _folded(torch.bitwise_xor, values),
}


def _folded(combine: Callable[[torch.Tensor, torch.Tensor], torch.Tensor], values: torch.Tensor) -> torch.Tensor:
    first, *others = values.unbind(0)
    for other in others:
        first = combine(first, other)
    return first


def is_small(reading: Reading) -> bool:
    """Are the values of this call worth a delivery, and are there any?"""
    tensors = [*reading.given, *(reading.reduced or ()), *(t for some in reading.received or () for t in some)]
    if not tensors or any(one.is_meta or is_fake(one) or one.is_sparse for one in tensors):
        return False
    return sum(one.numel() * one.element_size() for one in reading.given) <= LIMIT_BYTES


def parcel(sent: Pieces | None) -> bytes | None:
    """What goes to each member, to be opened with ``opened``."""
    if sent is None:
        return None
    with torch.no_grad(), no_torch_function():
        same = all(pieces is sent[0] for pieces in sent)
        return packed([[_flat(one) for one in pieces] for pieces in (sent[:1] if same else sent)])


def opened(parcel: bytes, member: int) -> list[torch.Tensor]:
    """The flat tensors that are meant for ``member``. What they are made of is none of the program's calls."""
    session = current()
    with contextlib.nullcontext() if session is None else paused(session):
        pieces = pickle.loads(parcel)
    return list(pieces[member if len(pieces) > 1 else 0])


def deliver(reading: Reading, op: str, parcels: Mapping[int, bytes], me: int) -> None:
    """Write what has come into the tensors that the call fills; ``parcels`` by the sender's position in the group.

    A member that was not run contributes to a reduction what this rank does; nothing else comes from it.
    """
    arrived = {member: opened(parcel, me) for member, parcel in parcels.items()}
    with torch.no_grad(), no_torch_function():
        if reading.reduced is not None and reading.sent is not None:
            own = arrived.get(me) or [_flat(one) for one in reading.sent[me]]
            reduce = _REDUCTIONS.get(op)
            if reduce is not None:
                members = [arrived.get(member, own) for member in range(len(reading.sent))]
                for index, target in enumerate(reading.reduced):
                    _fill(target, reduce(torch.stack([pieces[index] for pieces in members])))
        elif reading.kind == "recv":
            for pieces in arrived.values():
                _fill_all(reading.given, pieces)
        else:
            for member, pieces in arrived.items():
                _fill_all(reading.received[member] if reading.received else (), pieces)


def _flat(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().to("cpu", copy=True).reshape(-1)


def _fill_all(targets: Sequence[torch.Tensor], values: Sequence[torch.Tensor]) -> None:
    for target, value in zip(targets, values, strict=False):
        _fill(target, value)


def _fill(target: torch.Tensor, value: torch.Tensor) -> None:
    if target.numel() == value.numel():
        target.data.copy_(value.reshape(target.shape))
