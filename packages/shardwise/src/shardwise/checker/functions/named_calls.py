"""Does an autograd function communicate, or look at ranks? What its code names, and the code that it calls."""

from __future__ import annotations

import weakref
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import torch

from shardwise.interop.torch_compat import tree_leaves
from shardwise.oracle.simulated_ranks.identity import functions_behind, names_called

_TELLING = (
    "all_reduce",
    "all_gather",
    "reduce_scatter",
    "all_to_all",
    "isend",
    "irecv",
    "broadcast",
    "P2POp",
    "get_rank",
)
"""What in the code of a function says that it communicates, or that ranks do different things in it."""
_HINTS = (
    "reduce",
    "gather",
    "scatter",
    "all_to_all",
    "alltoall",
    "broadcast",
    "send",
    "recv",
    "rank",
    "group",
    "comm",
    "nccl",
    "mpi",
    "symm",
    "ops",
)
"""Parts of names that say that a function may communicate by other means, or look at ranks."""
_LOCAL = frozenset(name for name in dir(torch.Tensor) if not name.startswith("_"))
"""What a tensor calls its own methods: ``logits.gather(-1, ids)`` takes elements of this rank's memory."""
_SENDING = frozenset({"send", "isend", "P2POp"})
_known: weakref.WeakKeyDictionary[type, _NamedCalls] = weakref.WeakKeyDictionary()


@dataclass(frozen=True, slots=True)
class _NamedCalls:
    """What is to be known of the names in the code of one class."""

    communicates: bool
    may_communicate: bool
    sends: bool


def communicates(cls: type, args: Sequence[object]) -> bool:
    """True if forward or backward of ``cls``, or what they call, names a collective of torch or asks for a rank."""
    return _named(cls, args).communicates


def may_communicate(cls: type, args: Sequence[object]) -> bool:
    """True if anything that ``cls`` names sounds as if it might communicate or look at ranks, a kernel's name too."""
    return _named(cls, args).may_communicate


def sends_to_one(cls: type, args: Sequence[object]) -> bool:
    """True if it names what sends to one rank."""
    return _named(cls, args).sends


def sounds_of_others(names: Collection[str], explained: Collection[str] = ()) -> bool:
    """Does any of ``names`` sound as if it might communicate or look at ranks?

    ``explained``  names of functions of Python that have been looked into: what they call says what they do.
    """
    telling = {*names} - _local_names(names) - {*explained}
    return any(hint in name.lower() for hint in _HINTS for name in telling)


def _named(cls: type, args: Sequence[object]) -> _NamedCalls:
    known = _known.get(cls)
    if known is None:
        names = {name for one in functions_behind(cls, tree_leaves(tuple(args))) for name in names_called(one)}
        known = _known[cls] = _NamedCalls(
            communicates=any(name.startswith(_TELLING) for name in names),
            may_communicate=sounds_of_others(names),
            sends=not _SENDING.isdisjoint(names),
        )
    return known


def _local_names(names: Collection[str]) -> frozenset[str]:
    """Those of ``names`` that can only be methods of tensors: none, where a group or its module is named beside them.

    ``dist.gather`` and ``pg.scatter`` are named like methods of tensors.
    """
    return frozenset() if any("dist" in name.lower() or "pg" in name.lower() for name in names) else _LOCAL
