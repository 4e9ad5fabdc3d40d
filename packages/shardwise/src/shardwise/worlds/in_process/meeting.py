"""Who has come to which collective, do their calls agree, and who waits for whom?

The n-th collective of a process group on one rank meets the n-th on every other: that is all that the ranks of a real
job agree on, too. What moves is in ``exchange``; it moves when the last rank arrives.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field

from torch import Tensor

from shardwise.diagnostics.source import Site, user_site

from ..failures import CollectiveMismatch
from ..waiting import Entered, Standing, listed
from .exchange import GroupCall, Misfit, deliver, exchange
from .turns import Abandoned, Turns


@dataclass(frozen=True)
class GroupKey:
    """What makes the process groups of several ranks one group: its name, and its ranks in group order."""

    name: str
    ranks: tuple[int, ...]


@dataclass(eq=False)
class Arrival:
    """A rank that has come to a collective or a message. ``partner`` is the rank at the message's other end."""

    rank: int
    key: GroupKey
    call: GroupCall
    number: int | None
    site: Site | None
    tag: int = 0
    partner: int | None = None
    done: bool = False

    def __str__(self) -> str:
        where = "" if self.site is None else f" at {self.site.location()}"
        return f"rank {self.rank} calls {self.call}{where}"


@dataclass(eq=False)
class _Gathering:
    arrivals: dict[int, Arrival] = field(default_factory=dict)


class Meetings:
    """All collectives and messages of one world. ``fail`` is told of a mismatch, which ends the world."""

    def __init__(self, fail: Callable[[BaseException], None]) -> None:
        self._fail = fail
        self._count: dict[tuple[GroupKey, int], int] = defaultdict(int)
        self._open: dict[tuple[GroupKey, int], _Gathering] = {}
        self._sent: dict[GroupKey, list[Arrival]] = defaultdict(list)
        self._wanted: dict[GroupKey, list[Arrival]] = defaultdict(list)
        self._waiting: dict[int, Arrival] = {}

    def join(self, rank: int, key: GroupKey, call: GroupCall) -> Arrival:
        """Come to the next collective of the group. Done at once for the last rank that comes."""
        self._count[key, rank] += 1
        number = self._count[key, rank]
        arrival = Arrival(rank, key, call, number, user_site())
        gathering = self._open.setdefault((key, number), _Gathering())
        for other in gathering.arrivals.values():
            self._compare(other, arrival)
        gathering.arrivals[rank] = arrival
        if len(gathering.arrivals) == len(key.ranks):
            del self._open[key, number]
            met = [gathering.arrivals[member] for member in key.ranks]
            try:
                exchange([one.call for one in met])
            except Misfit as misfit:
                self._refuse(met[misfit.receiver], met[misfit.sender], misfit.why)
            for one in met:
                one.done = True
        return arrival

    def send(self, rank: int, key: GroupKey, x: Tensor, shown: Tensor, partner: int, tag: int) -> Arrival:
        """Offer a tensor to ``partner``, done when it is received."""
        arrival = Arrival(
            rank, key, GroupCall("send", [x], shown=[shown], ends=f" to rank {partner}"), None, user_site(), tag
        )
        arrival.partner = partner
        wanted = self._wanted[key]
        for other in wanted:
            if other.rank == partner and other.tag == tag and other.partner in (None, rank):
                wanted.remove(other)
                self._deliver(arrival, other)
                return arrival
        self._sent[key].append(arrival)
        return arrival

    def receive(self, rank: int, key: GroupKey, x: Tensor, shown: Tensor, partner: int | None, tag: int) -> Arrival:
        """Ask for a tensor of ``partner``, or of anybody if it is None: of who has offered first."""
        whom = "any rank" if partner is None else f"rank {partner}"
        call = GroupCall("recv", [], [x], shown=[shown], ends=f" from {whom}")
        arrival = Arrival(rank, key, call, None, user_site(), tag, partner)
        sent = self._sent[key]
        for other in sent:
            if other.partner == rank and other.tag == tag and partner in (None, other.rank):
                sent.remove(other)
                self._deliver(other, arrival)
                return arrival
        self._wanted[key].append(arrival)
        return arrival

    def _deliver(self, sender: Arrival, receiver: Arrival) -> None:
        (given,), (output,) = sender.call.inputs, receiver.call.outputs
        try:
            deliver(output, given)
        except Misfit as misfit:
            self._refuse(receiver, sender, misfit.why)
        receiver.partner = sender.rank
        sender.done = receiver.done = True

    def wait(self, turns: Turns, arrival: Arrival) -> None:
        """Let others run until ``arrival`` is done."""
        if not arrival.done:
            self._waiting[arrival.rank] = arrival
            turns.wait_until(arrival.rank, lambda: arrival.done)
            del self._waiting[arrival.rank]

    def standing(self, rank: int) -> Standing:
        """Where a rank is that has not ended: what it waits for, or just somewhere."""
        arrival = self._waiting.get(rank)
        if arrival is None:
            return Standing(rank)
        entered = Entered(str(arrival.call), arrival.key.ranks, arrival.number, self._missing(arrival))
        return Standing(rank, entered, None if arrival.site is None else arrival.site.location())

    def _missing(self, arrival: Arrival) -> tuple[int, ...]:
        if arrival.number is None:
            return () if arrival.partner is None else (arrival.partner,)
        meeting = self._open.get((arrival.key, arrival.number))
        if meeting is None:  # all have come, and the rank has not gone on since
            return ()
        come = meeting.arrivals
        return tuple(rank for rank in arrival.key.ranks if rank not in come)

    def _compare(self, first: Arrival, second: Arrival) -> None:
        for what, one, other in (
            ("", first.call.kind, second.call.kind),
            ("reductions", first.call.op, second.call.op),
            ("roots", first.call.root, second.call.root),
        ):
            if one != other:
                self._refuse(first, second, f"{what}: {one} and {other}" if what else f"{one} and {other}")

    def _refuse(self, first: Arrival, second: Arrival, why: str) -> None:
        number = f"collective {first.number}" if first.number is not None else "a message"
        self._fail(
            CollectiveMismatch(
                (first.rank, second.rank),
                f"ranks {first.rank} and {second.rank} disagree in {number} of the group of {listed(first.key.ranks)}: "
                f"{why}\n\n{first}\n{second}",
            )
        )
        raise Abandoned
