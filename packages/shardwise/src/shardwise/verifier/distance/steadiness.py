"""Which numbers that a program reads are its own in every run? A time, or what memory it took, is another each time."""

from __future__ import annotations

import torch

from shardwise.interop.running.recording import Record

from ..records.record import RankRun


def forget_unsteady(run: RankRun, again: RankRun | None) -> None:
    """Forget what was read in ``run`` and is not so in ``again``, the same run once more; all, if there is none.

    What is counted only, without a value, stays.
    """
    entries = [] if again is None else again.entries
    read = {one.key: one.value for one in entries if isinstance(one, Record) and one.key.kind == "read"}
    run.entries = [one for one in run.entries if one.key.kind != "read" or _is(one, read.get(one.key))]


def _is(entry: object, value: torch.Tensor | None) -> bool:
    known = entry.value if isinstance(entry, Record) else None
    return known is None or (value is not None and torch.equal(known, value))
