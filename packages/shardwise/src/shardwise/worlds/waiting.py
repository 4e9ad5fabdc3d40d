"""How do we say who waits for whom? A line per rank: the collective it has entered, and who never came to it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from shardwise.diagnostics.finding import absolute_root, location_text
from shardwise.diagnostics.source_location import SourceLocation

_SHOWN = 8
"""How many ranks are listed one by one."""


@dataclass(frozen=True, slots=True)
class Entered:
    """A collective, or a message, that a rank has entered and not left.

    ``call``     what was called, e.g. ``all_reduce(sum, f32[4])``.
    ``group``    the ranks of its process group.
    ``number``   it is this group's collective number so and so on this rank, counted from 1; None for a message.
    ``missing``  the ranks that have not come to it.
    """

    call: str
    group: tuple[int, ...]
    number: int | None = None
    missing: tuple[int, ...] = ()

    def __str__(self) -> str:
        number = "" if self.number is None else f", collective {self.number} of the group of {listed(self.group)}"
        missing = f"; {listed(self.missing)} never arrived" if self.missing else ""
        return f"in {self.call}{number}{missing}"


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a rank is. Without ``entered`` it is in no collective; ``instead`` says what else there is to say of it."""

    rank: int
    entered: Entered | None = None
    location: SourceLocation | None = None
    instead: str = ""

    def __str__(self) -> str:
        doing = self.instead or f"is {self.entered or 'in no collective'}"
        at = "" if self.location is None else f"at {location_text(self.location, absolute_root(None))} "
        return f"rank {self.rank} {at}{doing}"


def told(standings: Iterable[Standing]) -> str:
    """The standings as text, a line per rank."""
    return "\n".join(str(one) for one in sorted(standings, key=lambda one: one.rank))


def listed(ranks: Iterable[int]) -> str:
    """``rank 1``, ``ranks 0, 2``, ``ranks 0 to 63``; of many without an order the first few."""
    numbers = sorted(ranks)
    shown = ", ".join(map(str, numbers[:_SHOWN]))
    if len(numbers) > _SHOWN and numbers == list(range(numbers[0], numbers[-1] + 1)):
        shown = f"{numbers[0]} to {numbers[-1]}"
    elif len(numbers) > _SHOWN:
        shown += f" and {len(numbers) - _SHOWN} more"
    return ("rank " if len(numbers) == 1 else "ranks ") + shown
