"""Which parameters do the ranks train each on its own data, between averages? Their gradients need not be equal.

Local SGD and DiLoCo let the ranks drift apart for some steps and then make them equal again:

    enters step 1   equal       gradients differ
    enters step 2   differs     gradients differ
    at the end      equal

Replicas that drift and stay apart have lost a sum. So have those that are equal before every step, though their
gradients differ: some rank's update is copied to all. What differs before the first step is each rank's piece, of which
the parameter is put together (ZeRO 3).

Where they are made equal again after every step, the mean of their updates is right if it is what one rank comes to, as
it is under SGD.

A rank may train several copies of a model, as one worker after the other, of which one rank alone has more: then the
copies are shared out, and those that ranks have under one name are copies of their own.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

import torch

from shardwise.interop.running.recording import Record

from ..distance.value_comparison import Entries
from .alignment import Alignment

REMEDY = "give verify a program of one device that does the work of all ranks in turn (--against)"


AVERAGED = "the ranks step with their own, and all the steps together come to those of one rank"
_NEAR = 1e-3
"""How far ranks may end from one rank, relative to how far that has moved."""
_NUMBERED = re.compile(r"(.*) \(\d+\)")


def trained_apart(ranks: Sequence[Entries], alignment: Alignment) -> frozenset[str]:
    """The names of these parameters: those that start equal on ranks, differ as they enter a step, and end equal."""
    entering: dict[str, dict[int, dict[int, bytes]]] = {}
    for rank, run in enumerate(ranks):
        for key, record in run.items():
            if key.kind == "gradient" and isinstance(record, Record) and record.digest:
                entering.setdefault(key.name, {}).setdefault(key.nth, {})[rank] = record.digest
    ending = _ending(ranks)
    return frozenset(
        name
        for name, steps in entering.items()
        if _apart_and_together(name, [steps[nth] for nth in sorted(steps)], ending, alignment)
    )


def averaged_steps(ranks: Sequence[Entries], alone: Entries, alignment: Alignment, *, talking: bool) -> frozenset[str]:
    """The names of parameters whose gradients differ on the ranks that hold them, and that are equal after every step:
    what these steps together come to is what one rank has.

    ``talking``  an optimizer's step issues collectives, which may sum what enters it: then no step is a rank's own.
    """
    if talking:
        return frozenset()
    names = {key.name for key in alone if key.kind == "trained"}
    return frozenset(
        name
        for name in _ending(ranks)
        for group in alignment.of(name)
        if group.name in names and len(group.equal_axes()) == len(group.layouts[0].steps)
        if _comes_to_the_same([ranks[rank] for rank in group.ranks], name, alone, group.name)
    )


def _comes_to_the_same(ranks: Sequence[Entries], name: str, alone: Entries, there: str) -> bool:
    start, *_ = _values(alone, "parameter", there) or (None,)
    whole = _values(alone, "trained", there)
    ends = [end for run in ranks for end in _values(run, "trained", name)]
    gradients = [_values(run, "gradient", name) for run in ranks]
    if start is None or len(whole) != 1 or len(ends) != len(ranks) or any(end.shape != start.shape for end in ends):
        return False
    moved = float((whole[0].double() - start.double()).abs().max()) if start.numel() else 0.0
    near = all(float((end.double() - whole[0].double()).abs().max()) <= _NEAR * moved for end in ends)
    apart = any(len(each) == len(gradients[0]) and not all(map(torch.equal, each, gradients[0])) for each in gradients)
    return moved > 0 and near and apart and all(torch.equal(end, ends[0]) for end in ends)


def _values(run: Entries, kind: str, name: str) -> list[torch.Tensor]:
    """What a run has recorded of a parameter, one after the other."""
    found = [record for key, record in run.items() if (key.kind, key.name) == (kind, name)]
    return [record.value for record in found if isinstance(record, Record) and record.value is not None]


def copies_apart(ranks: Sequence[Entries], alone: Entries) -> frozenset[str]:
    """The names of parameters that end apart, of which every rank has several copies, and one rank alone has more."""
    counts = [_copies(run) for run in ranks]
    more = {base for base, count in _copies(alone).items() if all(1 < own[base] < count for own in counts)}
    return frozenset(
        name for name, last in _ending(ranks).items() if _base(name) in more and len(set(last.values())) > 1
    )


def _ending(ranks: Sequence[Entries]) -> dict[str, dict[int, bytes]]:
    """The digests of parameters after the last step, by name and rank."""
    ending: dict[str, dict[int, bytes]] = {}
    for rank, run in enumerate(ranks):
        for key, record in run.items():
            if key.kind == "trained" and isinstance(record, Record) and record.digest:
                ending.setdefault(key.name, {})[rank] = record.digest
    return ending


def _copies(run: Entries) -> Counter[str]:
    return Counter(_base(name) for name in {key.name for key in run if key.kind == "parameter"})


def _base(name: str) -> str:
    numbered = _NUMBERED.fullmatch(name)
    return numbered[1] if numbered else name


def _apart_and_together(
    name: str, steps: Sequence[dict[int, bytes]], ending: dict[str, dict[int, bytes]], alignment: Alignment
) -> bool:
    """Do the ranks that hold the parameter in equal copies differ in some step, and not at the end?"""
    for group in alignment.of(name):
        if len(group.equal_axes()) < len(group.layouts[0].steps):
            continue
        last = {ending.get(name, {}).get(rank) for rank in group.ranks}
        before, *later = (len({step[rank] for rank in group.ranks if rank in step}) for step in steps)
        drifted = before == 1 and any(count > 1 for count in later)
        if len(last) == 1 and None not in last and drifted:
            return True
    return False
