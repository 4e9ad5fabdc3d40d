"""Who comes late to the collectives, and how far the clocks of the ranks are apart.

Clocks: all members leave a collective together, so the median difference of the ends is that of the clocks. Where
durations are known, no clock is needed: the last to come waits the shortest.
"""

from __future__ import annotations

from array import array
from collections import Counter, defaultdict
from dataclasses import dataclass
from statistics import median

from tracewise.model.collectives import Recording, Schedule
from tracewise.ranks.wording import ranks_text, seconds, sentence

LATE_NS = 100_000_000
LATE_FACTOR = 5
SKEW_NS = 1_000_000
SKEW_SAMPLES = 200
USUAL_SHARE = 0.5
Windows = dict[int, tuple[Schedule, int]]


@dataclass(frozen=True, slots=True)
class Lateness:
    """``rank`` comes late at ``count`` of ``total`` positions, first and most at ``position``.

    ``is_tie``: no end of a call is known, and a clock that is ahead would look the same.
    """

    rank: int
    position: int
    late_ns: float
    count: int
    total: int
    waiting: list[int]
    by_durations: bool
    is_tie: bool

    def text(self, call: str, seq: int) -> str:
        often = f"and at {self.count} of {self.total} collectives" if self.count > 1 else "and only there"
        text = f"rank {self.rank} enters {call}, collective {seq}, {seconds(self.late_ns)} after the first, {often}"
        if self.by_durations:
            text += f"; {ranks_text(self.waiting)} waited for it"
        text += ": the straggler."
        if self.is_tie:
            text += f" No end is recorded, so {sentence(ranks_text([self.rank])).lower()} may also have a clock ahead."
        return text


def skews(recording: Recording) -> dict[int, float]:
    """Offsets of clocks over a millisecond, by rank, against the median rank."""
    differences: dict[int, list[float]] = defaultdict(list)
    for of_group in recording.schedules.values():
        if recording.source != "flight" or len(of_group) < 2:
            continue
        first = max(schedule.seqs[0] for schedule in of_group.values())
        ends = [[end for seq, end in zip(s.seqs, s.ended, strict=True) if seq >= first][:SKEW_SAMPLES]
                for s in of_group.values() if any(s.ended)]  # fmt: skip
        if len(ends) < len(of_group):
            continue
        for column in zip(*ends, strict=False):
            if all(column):
                middle = median(column)
                for rank, end in zip(of_group, column, strict=True):
                    differences[rank].append(end - middle)
    offsets = {rank: median(found) for rank, found in differences.items() if found}
    return {rank: offset for rank, offset in offsets.items() if abs(offset) > SKEW_NS}


def find_late(recording: Recording, windows: Windows, offsets: dict[int, float]) -> Lateness | None:
    """The rank that the others of a group wait for most; None if nobody does."""
    ranks = list(windows)
    total = min(len(schedule) - offset for schedule, offset in windows.values())
    if len(ranks) < 2 or total < 1:
        return None
    by_durations = recording.source == "profiler"
    columns = [_column(*windows[rank], total, by_durations, offsets.get(rank, 0.0)) for rank in ranks]
    if any(not column or min(column) <= 0 for column in columns):
        return None
    # The last to come has the latest time, or the shortest duration.
    lows, highs = [], []
    rows = list(zip(*columns, strict=True))
    for row in rows:
        lows.append(min(row))
        highs.append(max(row))
    spreads = [high - low for low, high in zip(lows, highs, strict=True)]
    late = [n for n, spread in enumerate(spreads) if spread > LATE_NS]
    ends = lows if by_durations else highs
    usual = LATE_FACTOR * median(spreads)
    who = Counter({n: ranks[rows[n].index(ends[n])] for n in late}.values())
    # A rank that is last nearly everywhere makes its lateness the usual spread.
    always = next((rank for rank, count in who.items() if count > USUAL_SHARE * total), None)
    late = [n for n in late if spreads[n] > usual or (always is not None and ranks[rows[n].index(ends[n])] == always)]
    if not late:
        return None
    who = Counter(ranks[rows[n].index(ends[n])] for n in late)
    rank = who.most_common(1)[0][0]
    of_rank = [n for n in late if ranks[rows[n].index(ends[n])] == rank]
    position = max(of_rank, key=lambda n: spreads[n])
    waiting = [r for r in ranks if r != rank]
    knows_ends = by_durations or any(any(schedule.ended) for schedule, _ in windows.values())
    is_tie = not knows_ends and rank == always and len(of_rank) == total
    return Lateness(rank, position, spreads[position], len(of_rank), total, waiting, by_durations, is_tie)


def _column(schedule: Schedule, offset: int, total: int, by_durations: bool, skew: float) -> list[int] | array[int]:
    created = schedule.created[offset : offset + total]
    if by_durations:
        return [end - begin for begin, end in zip(created, schedule.ended[offset : offset + total], strict=True)]
    return [int(time - skew) for time in created] if skew else created
