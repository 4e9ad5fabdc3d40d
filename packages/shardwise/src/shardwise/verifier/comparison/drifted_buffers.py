"""Buffers that were the same on all ranks, and at the end are not: a router's bias that follows a rank's own counts.

What a rank counts or meets by itself may stay its own: the ranks' buffers are compared with that of one rank.

sum of what ranks have changed    counts, rows that ranks fill for themselves
mean                              moving averages
largest or smallest               ranges of what was met
none of these                     nobody has made them equal again: a question
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from shardwise.diagnostics.printing.limits import counted

from ..records.record import BufferEnds, RankRun

_SHARE = 1e-3
"""What differs by less than this part of the largest element is equal up to roundings."""
_SHOWN = 3


def drifted_buffers(ranks: Sequence[RankRun], alone: RankRun) -> tuple[str, ...]:
    """What there is to ask of them, if there are any."""
    own = {name: [run.buffers[name] for run in ranks if name in run.buffers] for name in alone.buffers}
    found = [name for name, there in alone.buffers.items() if _has_drifted(own[name], there)]
    if not found:
        return ()
    some = ", ".join(found[:_SHOWN]) + (", ..." if len(found) > _SHOWN else "")
    return (
        f"{counted(len(found), 'buffer')} ({some}) began with the same values on all ranks and ends with other ones on "
        "each: no sum, mean or extreme of these is what one rank has. Where it follows from a rank's own data, what it "
        "is made of has to be summed over the ranks first (all_reduce)",
    )


def _has_drifted(own: Sequence[BufferEnds], there: BufferEnds) -> bool:
    if len(own) < 2 or any(one.after.shape != there.after.shape for one in own):
        return False
    if not frozenset.intersection(there.weights, *(one.weights for one in own)):
        return False  # other stages or shards may have modules of the same names
    if any(one.before.dtype != there.before.dtype or not torch.equal(one.before, there.before) for one in own):
        return False
    pieces = torch.stack([_wide(one.after) for one in own])
    expected = _wide(there.after)
    apart = _SHARE * float(max(pieces.abs().max(), expected.abs().max()))
    if not bool(torch.isfinite(pieces).all()) or float((pieces.amax(0) - pieces.amin(0)).max()) <= apart:
        return False
    before = _wide(there.before)
    ways = (before + (pieces - before).sum(0), pieces.mean(0), pieces.amax(0), pieces.amin(0))
    return all(float((way - expected).abs().max()) > apart for way in ways)


def _wide(x: torch.Tensor) -> torch.Tensor:
    return torch.view_as_real(x.to(torch.complex128)) if x.is_complex() else x.double()
