"""Would the ranks of a job hang? Replays what each of them asks of the others, and finds where they part ways.

Pure: traces in, findings out. Every rank goes on until a call that blocks; a call is done when all whose calls are
known have come. It blocks the thread that issues it, and no other. Ranks that were not run are taken to follow. When
nobody can go on, the reason is one of these: a rank has ended that others wait for (SW503), a call that the others
never issue (SW501), or calls that all issue, in orders that cross (SW504). Before it comes to that, calls that meet are
compared: SW501, SW502, SW505. What the replay leaves behind is a message without its other half (SW506).
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Iterable, Iterator, Sequence

from shardwise.diagnostics.finding import Finding

from .calls import End, Ending, Trace, TracedCall, Wait
from .findings import crossed, left_waiting, mismatch, never_issued, unmatched
from .matching import Matcher, Meeting, channel_of, clashes


class _Rank:
    """How far one rank is in its trace, and what its threads wait for."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        threads = trace.threads or (0,) * len(trace.events)
        self._left: dict[int, deque[int]] = {thread: deque() for thread in threads}
        """By thread the positions of the events that are still to come."""
        for position, thread in enumerate(threads):
            self._left[thread].append(position)
        self._waits: dict[int, list[Meeting]] = {}
        self.posted: dict[int, TracedCall] = {}

    @property
    def waits_for(self) -> list[Meeting]:
        return [meeting for waits in self._waits.values() for meeting in waits if not meeting.complete]

    @property
    def blocked(self) -> bool:
        return bool(self.waits_for)

    @property
    def ended(self) -> bool:
        return not self.blocked and not any(self._left.values())

    def take(self) -> tuple[int, int] | None:
        """A thread that can go on, and the position of its next event; None if all are blocked or have ended.

        In one channel calls keep their order, whichever threads they are of.
        """
        for thread, left in self._left.items():
            blocked = not all(meeting.complete for meeting in self._waits.get(thread, ()))
            if left and not blocked and (len(self._left) == 1 or self._is_due(left[0])):
                return thread, left.popleft()
        return None

    def _is_due(self, position: int) -> bool:
        """Whether other threads have done what comes before this event: what it waits for, calls in its channel."""
        event = self.trace.events[position]
        if isinstance(event, Wait):
            return all(one in self.posted for one in event.events)
        earlier = (self.trace.events[one] for left in self._left.values() for one in left if one < position)
        return not any(isinstance(e, TracedCall) and channel_of(e) == channel_of(event) for e in earlier)

    def wait(self, thread: int, meetings: list[Meeting]) -> None:
        """``thread`` goes on when these calls are done."""
        self._waits[thread] = meetings

    def later(self, meeting: Meeting) -> TracedCall | None:
        """The call with which this rank would come to ``meeting``, were it not stuck before; None if it never comes."""
        left = [self.trace.events[position] for position in sorted(itertools.chain(*self._left.values()))]
        if len(meeting.channel) == 3:  # a message: the other half of the one that has come
            ((_, first),) = meeting.calls.values()
            return next((e for e in left if isinstance(e, TracedCall) and e.is_message and _pair(first, e)), None)
        return next((e for e in left if isinstance(e, TracedCall) and channel_of(e) == meeting.channel), None)


def _pair(one: TracedCall, two: TracedCall) -> bool:
    return one.kind != two.kind and (one.group, one.tag) == (two.group, two.tag)


def compare(traces: Iterable[Trace]) -> tuple[Finding, ...]:
    """What keeps the ranks from running to their ends together; empty if nothing does."""
    return tuple(_Replay(sorted(traces, key=lambda trace: trace.rank)).run())


class _Replay:
    def __init__(self, traces: Sequence[Trace]) -> None:
        self.ranks = {trace.rank: _Rank(trace) for trace in traces}
        self.matcher = Matcher(self.ranks)
        self.told: set[object] = set()

    def run(self) -> Iterator[Finding]:
        moved = True
        while moved:
            moved = False
            for rank in self.ranks:
                while (taken := self.ranks[rank].take()) is not None:
                    moved = True
                    found = self._step(rank, *taken)
                    if found is not None:
                        yield found
                        if found.code in ("SW501", "SW502"):
                            return  # from here on the ranks do not speak of the same calls
        if any(not rank.ended for rank in self.ranks.values()):
            yield from self._stall()
        else:
            yield from self._leftovers()

    def _step(self, rank: int, thread: int, position: int) -> Finding | None:
        """Let a thread of ``rank`` take its next event; what is wrong with the calls that it meets."""
        state = self.ranks[rank]
        event = state.trace.events[position]
        if isinstance(event, Wait):
            state.wait(thread, [self.matcher.of(rank, position) for position in event.events])
            return None
        meeting = self.matcher.post(rank, position, event)
        state.posted[position] = event
        if event.blocking:
            state.wait(thread, [meeting])
        for other, found in clashes(meeting, rank):
            places = found.code, event.location, meeting.calls[other][1].location
            if places in self.told:
                return None
            self.told.add(places)
            return mismatch(found, self._would_be(meeting), meeting)
        return None

    def _would_be(self, meeting: Meeting) -> dict[int, TracedCall]:
        """The calls that meet here, those included that ranks would come with later."""
        calls = {rank: call for rank, (_, call) in meeting.calls.items()}
        for rank in meeting.missing:
            later = self.ranks[rank].later(meeting) if rank is not None and self._in_turn(rank, meeting) else None
            if rank is not None and later is not None:
                calls[rank] = later
        return dict(sorted(calls.items()))

    def _in_turn(self, rank: int, meeting: Meeting) -> bool:
        """Is this meeting the next one of its channel that ``rank`` has to come to?"""
        issued = sum(channel_of(e) == meeting.channel for e in self.ranks[rank].posted.values() if not e.is_message)
        return len(meeting.channel) == 3 or issued == meeting.number

    def _stall(self) -> Iterator[Finding]:
        """Nobody can go on: the ranks that have ended while others wait for them, or else a circle."""
        ended: dict[int, tuple[int, Meeting]] = {}
        waits = [(rank, meeting) for rank, state in self.ranks.items() for meeting in state.waits_for]
        # Where nobody else is missing, it is not that somebody waits for one who waits.
        waits.sort(key=lambda wait: not all(map(self._has_ended, wait[1].missing)))
        for rank, meeting in waits:
            for other in meeting.missing:
                if other is not None and self._has_ended(other):
                    ended.setdefault(other, (rank, meeting))
        yield from self._left(ended)
        if not ended:
            yield from self._circle()

    def _has_ended(self, rank: int | None) -> bool:
        return rank is not None and self.ranks[rank].ended

    def _left(self, ended: dict[int, tuple[int, Meeting]]) -> Iterator[Finding]:
        causes: dict[object, tuple[int, Meeting, list[int]]] = {}
        for other, (rank, meeting) in sorted(ended.items()):
            end = self.ranks[other].trace.end
            if end.how is Ending.CUT:
                continue
            call = meeting.calls[rank][1]
            causes.setdefault((end, call.kind, call.location), (rank, meeting, []))[2].append(other)
        for rank, meeting, others in causes.values():
            waiting = [one for one, state in self.ranks.items() if meeting in state.waits_for]
            last = self._last_on(others[0], meeting)
            yield left_waiting(meeting, sorted({rank, *waiting}), others, self.ranks[others[0]].trace.end, last)

    def _last_on(self, rank: int, meeting: Meeting) -> TracedCall | None:
        """The call of ``rank`` that came before the one that is missed."""
        if len(meeting.channel) == 3:
            return None
        return next(
            (call for call in reversed(self.ranks[rank].posted.values()) if channel_of(call) == meeting.channel), None
        )

    def _circle(self) -> Iterator[Finding]:
        path: list[int] = []
        rank = next(rank for rank, state in self.ranks.items() if state.blocked)
        while rank not in path:
            path.append(rank)
            missing = sorted(one for one in self.ranks[rank].waits_for[0].missing if one is not None)
            if not missing:  # a receive from anybody that nobody sends to
                yield unmatched(self.ranks[rank].waits_for[0])
                return
            rank = missing[0]
        circle = path[path.index(rank) :]
        steps = [(rank, self.ranks[rank].waits_for[0]) for rank in circle]
        nexts = [*circle[1:], circle[0]]
        for (rank, meeting), other in zip(steps, nexts, strict=True):
            if self.ranks[other].later(meeting) is None:
                yield never_issued(meeting, rank, other, self.ranks[other].waits_for[0])
                return
        yield crossed([(rank, meeting.calls[rank][1]) for rank, meeting in steps])

    def _leftovers(self) -> Iterator[Finding]:
        """All have ended; what was begun without waiting for it may still lack its other half."""
        for meeting in self.matcher.unfinished():
            missing = [rank for rank in meeting.missing if rank is not None]
            ends = [self.ranks[rank].trace.end for rank in missing]
            if any(end.how is Ending.CUT for end in (*ends, *(self.ranks[r].trace.end for r in meeting.calls))):
                continue
            call = next(iter(meeting.calls.values()))[1]
            if (call.kind, call.location) in self.told:
                continue
            self.told.add((call.kind, call.location))
            if call.is_message:
                yield unmatched(meeting)
            else:
                end = ends[0] if ends else End()
                yield left_waiting(meeting, sorted(meeting.calls), missing, end, self._last_on(missing[0], meeting))
