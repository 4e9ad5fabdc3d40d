"""Does an autograd function communicate, or look at ranks? What its code names, and the code that it calls."""

from __future__ import annotations

import weakref
from collections.abc import Sequence

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
_communicates: weakref.WeakKeyDictionary[type, bool] = weakref.WeakKeyDictionary()
_may_communicate: weakref.WeakKeyDictionary[type, bool] = weakref.WeakKeyDictionary()


def communicates(cls: type, args: Sequence[object]) -> bool:
    """True if forward or backward of ``cls``, or what they call, names a collective of torch or asks for a rank."""
    known = _communicates.get(cls)
    if known is None:
        known = _communicates[cls] = any(name.startswith(_TELLING) for name in _names_behind(cls, args))
    return known


def may_communicate(cls: type, args: Sequence[object]) -> bool:
    """True if anything that ``cls`` names sounds as if it might communicate or look at ranks, a kernel's name too."""
    known = _may_communicate.get(cls)
    if known is None:
        names = {name.lower() for name in _names_behind(cls, args)}
        known = _may_communicate[cls] = any(hint in name for hint in _HINTS for name in names)
    return known


def _names_behind(cls: type, args: Sequence[object]) -> set[str]:
    functions = functions_behind(cls, tree_leaves(tuple(args)))
    return {name for function in functions for name in names_called(function)}
