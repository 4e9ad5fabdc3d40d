"""The picture of a pipeline's schedule: a row for every rank, a column for every unit of time."""

from __future__ import annotations

import math
from collections.abc import Sequence as Counts

from shardwise.drawing.model import Heading, Look, Matrix, Picture, Sequence, Tile

from .schedule import Order, ScheduleTimes, TaskKind, Timed, times_of

MOST_UNITS = 16
"""So many columns stand beside each other."""
_MEANT = {
    TaskKind.FORWARD: "F0 is the forward pass of micro-batch 0",
    TaskKind.BACKWARD: "B0 its backward pass, which takes two units",
    TaskKind.BACKWARD_INPUT: "B0 the gradient of its input",
    TaskKind.BACKWARD_WEIGHT: "W0 those of the weights",
}


def schedule_picture(order: Order, ranks: int, most: int = MOST_UNITS) -> Picture:
    """Who does what when, ``most`` units beside each other, and how long each rank waits.

    Errors: SW905 if the schedule never ends.
    """
    times = times_of(order, ranks)
    chunks = 1 + max((timed.task.stage for rank in times.ranks for timed in rank), default=0) // ranks
    width = max((len(_text(timed, ranks)) for rank in times.ranks for timed in rank), default=1)
    rows = [_row(rank, times.units, ranks, width) for rank in times.ranks]
    across = math.ceil(times.units / math.ceil(times.units / most)) if times.units else 1
    parts = [_part(rows, first, across) for first in range(0, times.units, across)]
    return Picture(
        f"the schedule on {ranks} {'rank' if ranks == 1 else 'ranks'}: {times.units} units of time",
        f"A row for every rank, a column for every unit of time. {'; '.join(_told(times))}.",
        Sequence(tuple(parts), across=False),
        tuple(_notes(times, chunks)),
    )


def _part(rows: list[tuple[Tile, ...]], first: int, count: int) -> Matrix:
    """The units from ``first`` on; a long schedule goes on below."""
    cut = tuple(row[first : first + count] for row in rows)
    ticks = tuple(str(unit) if unit % 5 == 0 else "" for unit in range(first, first + len(cut[0])))
    return Matrix(cut, across=Heading("time", ticks), down=Heading("rank", tuple(map(str, range(len(rows))))))


def _row(tasks: tuple[Timed, ...], units: int, ranks: int, width: int) -> tuple[Tile, ...]:
    row = [Tile(("",), look=Look.FAINT, least=width)] * units
    for timed in tasks:
        tile = Tile((_text(timed, ranks),), tone=list(TaskKind).index(timed.task.kind), least=width)
        row[timed.start : timed.end] = [tile] * (timed.end - timed.start)
    return tuple(row)


def _text(timed: Timed, ranks: int) -> str:
    """``F0``, and with a tick for every round that the micro-batch has made before: ``F0'``."""
    return str(timed.task) + "'" * (timed.task.stage // ranks)


def _told(times: ScheduleTimes) -> list[str]:
    return [f"rank {rank}: {' '.join(str(timed.task) for timed in tasks)}" for rank, tasks in enumerate(times.ranks)]


def _notes(times: ScheduleTimes, chunks: int) -> list[str]:
    kinds = {timed.task.kind for rank in times.ranks for timed in rank}
    notes = ["; ".join(text for kind, text in _MEANT.items() if kind in kinds)]
    if chunks > 1:
        notes.append(f"every rank has {chunks} stages; F0' is the forward pass in its second one")
    ranks = range(len(times.ranks))
    notes.append(f"units of {times.units} that a rank waits: {_by_rank([times.idle(rank) for rank in ranks])}")
    kept = _by_rank([times.held(rank) for rank in ranks])
    notes.append(f"micro-batches whose activations a rank keeps at once: {kept}")
    return notes


def _by_rank(counts: Counts[int]) -> str:
    if len(set(counts)) == 1:
        return f"{counts[0]} on every rank"
    return ", ".join(f"{count} on rank {rank}" for rank, count in enumerate(counts))
