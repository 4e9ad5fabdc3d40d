"""Which calls of different ranks belong together, and do they fit? The rules of ``torch.distributed``, without torch.

The n-th collective that a rank issues on a group meets the n-th of every other member, whatever it is; that they are
the same is for the program to see to. A send meets the first receive that is open for it, in order, and the other way
round. What must agree then: the kind, the reduction, the root, the dtypes, and for every two members the number of
elements that one sends and the other expects.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

from .calls import TracedCall

REDUCING = ("all_reduce", "reduce", "reduce_scatter")
Channel = tuple[object, ...]


@dataclass(eq=False)
class Meeting:
    """Calls that belong together; ``calls`` are those that have come, by rank, with their positions in the traces.

    ``expected`` are the ranks that must come, of those whose calls are known at all; None stands for a sender that may
    be any.
    """

    channel: Channel
    expected: set[int | None]
    calls: dict[int, tuple[int, TracedCall]] = field(default_factory=dict)
    number: int = 0
    """How many meetings the channel had before."""

    @property
    def missing(self) -> set[int | None]:
        return self.expected - set(self.calls)

    @property
    def complete(self) -> bool:
        return not self.missing


@dataclass(frozen=True, slots=True)
class Clash:
    """Two calls that meet and do not fit: the code, and what differs, in words."""

    code: str
    what: str


class Matcher:
    """Brings calls together, in the order in which they are posted. Ranks outside ``known`` are not waited for."""

    def __init__(self, known: Collection[int]) -> None:
        self._known = frozenset(known)
        self._rounds: dict[Channel, list[Meeting]] = defaultdict(list)
        self._issued: dict[tuple[Channel, int], int] = defaultdict(int)
        self._open: dict[Channel, list[Meeting]] = defaultdict(list)
        self._meetings: dict[tuple[int, int], Meeting] = {}

    def post(self, rank: int, position: int, call: TracedCall) -> Meeting:
        """The meeting that event ``position`` of ``rank`` belongs to."""
        meeting = self._message(rank, call) if call.is_message else self._round(rank, call)
        meeting.calls[rank] = (position, call)
        self._meetings[rank, position] = meeting
        return meeting

    def of(self, rank: int, position: int) -> Meeting:
        """The meeting of a call that was posted."""
        return self._meetings[rank, position]

    def unfinished(self) -> Iterator[Meeting]:
        """Meetings to which somebody did not come."""
        seen = {id(meeting): meeting for meeting in self._meetings.values() if not meeting.complete}
        yield from seen.values()

    def _round(self, rank: int, call: TracedCall) -> Meeting:
        channel = channel_of(call)
        number = self._issued[channel, rank]
        self._issued[channel, rank] += 1
        rounds = self._rounds[channel]
        if number == len(rounds):
            rounds.append(Meeting(channel, set(self._known.intersection(call.group.ranks)), number=number))
        return rounds[number]

    def _message(self, rank: int, call: TracedCall) -> Meeting:
        sending = call.kind == "send"
        channel = (call.group, call.peer if sending else rank, call.tag)
        waiting = self._open[channel]
        for meeting in waiting:
            ((other, (_, first)),) = meeting.calls.items()
            if sending and first.kind == "recv" and first.peer in (None, rank):
                break
            if not sending and first.kind == "send" and call.peer in (None, other):
                break
        else:
            partners = {call.peer} if call.peer is not None else set(call.group.ranks)
            meeting = Meeting(channel, {rank, call.peer} if partners <= self._known else {rank})
            waiting.append(meeting)
            return meeting
        waiting.remove(meeting)
        meeting.expected = {rank, other}
        return meeting


def channel_of(call: TracedCall) -> Channel:
    """What has an order of its own: the collectives of one group; the making of groups."""
    return ("new_group", call.group) if call.kind == "new_group" else (call.group,)


def clash(rank: int, call: TracedCall, other: int, others: TracedCall) -> Clash | None:
    """What does not fit between two calls that meet; None if they fit."""
    if call.is_message:
        return _message_clash(call, others) if call.kind == "recv" else _message_clash(others, call)
    if call.kind == "new_group" == others.kind:
        return None if call.members == others.members else Clash("SW502", "different process groups are made")
    if call.kind != others.kind:
        return Clash("SW501", "different collectives meet")
    told = [("reduction", call.op, others.op), ("root", call.root, others.root)]
    told.append(("dtype", _dtypes(call), _dtypes(others)))
    if call.kind in REDUCING:
        told.append(("shape", _shapes(call), _shapes(others)))
    for what, one, two in told:
        if one != two:
            return Clash("SW505", f"the {what} is {one} on rank {rank} and {two} on rank {other}")
    return _sizes_clash(rank, call, other, others) or _sizes_clash(other, others, rank, call)


def clashes(meeting: Meeting, rank: int) -> Iterator[tuple[int, Clash]]:
    """The ranks whose calls do not fit that of ``rank``, and why."""
    _, call = meeting.calls[rank]
    for other, (_, others) in meeting.calls.items():
        found = None if other == rank else clash(rank, call, other, others)
        if found is not None:
            yield other, found


def _dtypes(call: TracedCall) -> str:
    return ", ".join(dict.fromkeys(call.dtypes))


def _shapes(call: TracedCall) -> str:
    return ", ".join(str(list(shape)) for shape in call.shapes)


def _sizes_clash(rank: int, call: TracedCall, other: int, others: TracedCall) -> Clash | None:
    """Does ``rank`` send to ``other`` as much as is expected there?"""
    if call.sends is None or others.receives is None:
        return None
    sent = call.sends[call.group.ranks.index(other)]
    expected = others.receives[others.group.ranks.index(rank)]
    if sent == expected:
        return None
    return Clash("SW505", f"rank {rank} sends {sent} elements to rank {other}, which expects {expected}")


def _message_clash(recv: TracedCall, send: TracedCall) -> Clash | None:
    if recv.kind == send.kind or not recv.shapes or not send.shapes:
        return None
    if _dtypes(recv) != _dtypes(send):
        return Clash("SW505", f"{_dtypes(send)} is sent where {_dtypes(recv)} is expected")
    sent, expected = (sum(map(math.prod, one.shapes)) for one in (send, recv))
    return None if sent == expected else Clash("SW505", f"{sent} elements are sent where {expected} are expected")
