"""The picture of a pipeline's schedule: a row for every rank, a column for every unit of time.

Of many ranks some are drawn, and of a long schedule the time in which these do something; the rest is said in words.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from collections.abc import Sequence as Counts

from shardwise.diagnostics.printing.limits import counted
from shardwise.drawing.model import Block, Heading, Look, Matrix, Picture, Sequence, Tile, Words
from shardwise.drawing.nesting import DimPart, indices
from shardwise.drawing.tensors import LIMIT

from .schedule import Order, ScheduleTimes, TaskKind, Timed, times_of

MOST_UNITS = 16
"""So many columns of two letters stand beside each other, and fewer wide ones."""
MOST_ROWS = 4
"""A schedule of more rows of so many columns is long: not all of it is drawn."""
MOST_BUSY_ROWS = 8
"""So many rows in which a rank does something are drawn of it then."""
MOST_RANKS = 4096
"""Of more ranks no schedule is computed."""
MOST_TOLD = 6
"""So many counts of ranks are told apart in a note."""
_MEANT = {
    TaskKind.FORWARD: "F0 is the forward pass of micro-batch 0",
    TaskKind.BACKWARD: "B0 its backward pass, which takes two units",
    TaskKind.BACKWARD_INPUT: "B0 the gradient of its input",
    TaskKind.BACKWARD_WEIGHT: "W0 those of the weights",
}
Ranks = tuple[DimPart, ...]
"""Those that have a row, and where some are left out."""


def schedule_picture(order: Order, ranks: int, most: int = MOST_UNITS, *, limit: int = LIMIT) -> Picture:
    """Who does what when, ``most`` units beside each other, and how long each rank waits.

    ``limit`` ranks are drawn, and of a long schedule what these do.
    Errors: SW905 if the schedule never ends.
    """
    if ranks > MOST_RANKS:
        told = f"A schedule on {ranks} ranks is not drawn: {MOST_RANKS} are the most."
        return Picture(f"the schedule on {ranks} ranks", told, Words((told,)))
    times = times_of(order, ranks)
    shown = indices(ranks, limit)
    drawn = [part.start for part in shown if not part.is_left_out]
    chunks = 1 + max((timed.task.stage for rank in times.ranks for timed in rank), default=0) // ranks
    width = max((len(_text(timed, ranks)) for rank in times.ranks for timed in rank), default=1)
    beside = most * 5 // (3 + max(width, 2))
    parts = [_part(times, shown, window, width) for window in _windows(times, drawn, beside)]
    return Picture(
        f"the schedule on {counted(ranks, 'rank')}: {times.units} units of time",
        f"A row for every rank, a column for every unit of time. {'; '.join(_told(times, drawn))}.",
        Sequence(tuple(parts), across=False),
        tuple(_notes(times, chunks, drawn)),
    )


def _windows(times: ScheduleTimes, drawn: Counts[int], most: int) -> list[DimPart]:
    """The units that stand beside each other, one row after the other.

    Of a long schedule those are left out in which none of the ranks that are drawn does anything, and the middle of
    what is too long still.
    """
    units = times.units
    if units <= MOST_ROWS * most:
        across = math.ceil(units / math.ceil(units / most)) if units else 1
        return [DimPart(first, min(first + across, units)) for first in range(0, units, across)]
    busy = [timed for rank in drawn for timed in times.ranks[rank]]
    kept = sorted({unit // most * most for timed in busy for unit in range(timed.start, timed.end)})
    half = MOST_BUSY_ROWS // 2
    if len(kept) > MOST_BUSY_ROWS:
        kept = kept[:half] + kept[-half:]
    found, upto = list[DimPart](), 0
    for first in kept:
        if first > upto:
            found.append(DimPart(upto, first, True))
        upto = min(first + most, units)
        found.append(DimPart(first, upto))
    return found


def _part(times: ScheduleTimes, shown: Ranks, window: DimPart, width: int) -> Block:
    """These units of the ranks that are drawn; a long schedule goes on below."""
    if window.is_left_out:
        return Words((f"⋮  units {window.start} to {window.stop - 1} are left out",))
    units = range(window.start, window.stop)
    left_out = tuple(Tile(("⋮",), look=Look.BARE, least=width) for _ in units)
    rows = [left_out if part.is_left_out else _row(times, part.start, units, width) for part in shown]
    ticks = tuple(str(unit) if unit % 5 == 0 else "" for unit in units)
    down = Heading("rank", tuple(part.tick for part in shown))
    return Matrix(tuple(rows), across=Heading("time", ticks), down=down)


def _row(times: ScheduleTimes, rank: int, units: range, width: int) -> tuple[Tile, ...]:
    row = [Tile(("",), look=Look.FAINT, least=width)] * len(units)
    for timed in times.ranks[rank]:
        tile = Tile((_text(timed, len(times.ranks)),), tone=list(TaskKind).index(timed.task.kind), least=width)
        for unit in range(max(timed.start, units.start), min(timed.end, units.stop)):
            row[unit - units.start] = tile
    return tuple(row)


def _text(timed: Timed, ranks: int) -> str:
    """``F0``, and with a tick for every round that the micro-batch has made before: ``F0'``."""
    return str(timed.task) + "'" * (timed.task.stage // ranks)


def _told(times: ScheduleTimes, drawn: Counts[int]) -> Iterator[str]:
    return (f"rank {rank}: {' '.join(str(timed.task) for timed in times.ranks[rank])}" for rank in drawn)


def _notes(times: ScheduleTimes, chunks: int, drawn: Counts[int]) -> list[str]:
    ranks = range(len(times.ranks))
    kinds = {timed.task.kind for rank in times.ranks for timed in rank}
    notes = ["; ".join(text for kind, text in _MEANT.items() if kind in kinds)]
    if chunks > 1:
        notes.append(f"every rank has {chunks} stages; F0' is the forward pass in its second one")
    if len(drawn) < len(ranks):
        spans = [
            f"rank {rank} from unit {_span(times, rank)}" for rank in (ranks[0], ranks[len(ranks) // 2], ranks[-1])
        ]
        notes.append(
            f"{len(drawn)} of {len(ranks)} ranks are drawn; they work one behind the other: {', '.join(spans)}"
        )
    notes.append(f"units of {times.units} that a rank waits: {_by_rank([times.idle(rank) for rank in ranks])}")
    kept = _by_rank([times.held(rank) for rank in ranks])
    notes.append(f"micro-batches whose activations a rank keeps at once: {kept}")
    return notes


def _span(times: ScheduleTimes, rank: int) -> str:
    tasks = times.ranks[rank]
    return f"{tasks[0].start} to {tasks[-1].end}" if tasks else "0 to 0"


def _by_rank(counts: Counts[int]) -> str:
    """What each rank has, ranks with the same beside each other together."""
    if len(set(counts)) == 1:
        return f"{counts[0]} on every rank"
    told, first = [], 0
    for count, group in itertools.groupby(counts):
        last = first + len(list(group)) - 1
        told.append(f"{count} on rank {first}" if first == last else f"{count} on ranks {first} to {last}")
        first = last + 1
    more = [f"{min(counts)} to {max(counts)} on the others"] if len(told) > MOST_TOLD else []
    return ", ".join(told[:MOST_TOLD] + more)
