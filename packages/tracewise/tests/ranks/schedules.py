"""Recordings of jobs with one planted fault, made in memory."""

from __future__ import annotations

import random
from array import array
from dataclasses import dataclass

from tracewise.model.collectives import Group, Kind, Recording, Schedule
from tracewise.model.entities import Frame

STEP_NS = 10_000_000
START_NS = 1_795_000_000_000_000_000
FAULTS = ("skip", "extra", "swap", "op", "size", "group", "late")
# Verdict and what it says of each fault.
EXPECTED = {
    "skip": ("operation", "skipped"),
    "extra": ("operation", "extra"),
    "swap": ("operation", "swapped"),
    "op": ("operation", "replaced"),
    "size": ("size", "elements"),
    "group": ("operation", "group"),
    "late": ("late", ""),
}


@dataclass(frozen=True)
class Planted:
    """The recording, and where its fault is: ``seq`` counts from 1."""

    recording: Recording
    rank: int
    seq: int


def planted(world: int, length: int, fault: str, seed: int) -> Planted:
    """A job whose ranks all make ``length`` calls over one group; one of them errs once."""
    choice = random.Random(seed)
    recording = Recording("flight", set(range(world)), world)
    for name in ("0", "1"):
        recording.groups[name] = Group(name, "", set(range(world)), True)
    kinds = [
        recording.kind(Kind(op, ("float32",), ((size,),), ((size * (world if op == "all_gather" else 1),),)))
        for op in ("all_reduce", "broadcast", "all_gather")
        for size in (8, 16, 1024)
    ]
    barrier = recording.kind(Kind("barrier"))
    sites = [recording.site(Frame("train.py", line, "step", "")) for line in range(10, 30)]
    base = array("I")
    while len(base) < length:
        kind = choice.choice(kinds)
        # Neighbours of one kind would make a skip of the first look like one of the second.
        if not base or base[-1] != kind:
            base.append(kind)
    places = array("I", (choice.choice(sites) for _ in range(length)))
    times = array("q", (START_NS + n * STEP_NS for n in range(length)))
    seqs, zeros = array("q", range(1, length + 22)), array("q", bytes(8 * (length + 22)))
    rank, at = choice.randrange(world), choice.randrange(length // 4, length // 2)
    for member in range(world):
        # Columns of thousands of equal ranks are shared, or the making takes longer than the comparison.
        is_shared = world > 1000 and member != rank
        own, where, when = (base, places, times) if is_shared else (base[:], places[:], times[:])
        other = array("I", [barrier] * 20)
        if member == rank:
            match fault:
                case "skip":
                    del own[at], where[at], when[at]
                case "extra":
                    own.insert(at, barrier)
                    where.insert(at, sites[0])
                    when.insert(at, when[at])
                case "swap":
                    own[at], own[at + 1] = own[at + 1], own[at]
                case "op":
                    own[at] = barrier
                case "size":
                    kind = recording.kinds[own[at]]
                    grown = tuple((size[0] * 3,) for size in kind.sizes)
                    out = tuple((size[0] * 3,) for size in kind.out_sizes)
                    own[at] = recording.kind(kind._replace(sizes=grown, out_sizes=out))
                case "group":
                    other.insert(7, own[at])
                    del own[at], where[at], when[at]
                case "late":
                    when[at] += 700_000_000
        for name, calls in (("0", own), ("1", other)):
            count = len(calls)
            schedule = Schedule(member, name, seqs[:count], calls)
            schedule.sites = where if name == "0" else array("I", [sites[0]]) * count
            schedule.created = when if name == "0" else array("q", [START_NS]) * count
            if is_shared:
                schedule.ended, schedule.order = zeros, seqs
            else:
                schedule.ended, schedule.order = zeros[:count], seqs[:count]
            schedule.states, schedule.active = bytearray(count), bytearray(count)
            recording.schedules.setdefault(name, {})[member] = schedule
    return Planted(recording, rank, at + 1)
