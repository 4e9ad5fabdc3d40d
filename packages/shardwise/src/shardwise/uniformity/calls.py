"""What does a rank ask of the others? The calls that it issues, in order, and how it ends: plain data, no torch."""

from __future__ import annotations

import enum
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from shardwise.diagnostics.printing.ranks import ranks_text
from shardwise.diagnostics.source_location import SourceLocation


@dataclass(frozen=True, slots=True)
class TracedGroup:
    """A process group as all of its members know it.

    ``ranks``   its members, as ranks of the world, in the order of their ranks in the group.
    ``number``  how many groups of the same ranks the program made before.
    ``name``    what people call it, e.g. the mesh axis ``tp``; does not tell groups apart.
    """

    ranks: tuple[int, ...]
    number: int = 0
    name: str = field(default="", compare=False)

    def __str__(self) -> str:
        members = ranks_text(self.ranks)
        return f"{self.name} ({members})" if self.name else members


@dataclass(frozen=True, slots=True)
class TracedCall:
    """One collective, message or creation of a group, as one rank issues it.

    ``kind``            ``all_reduce``, ``all_gather``, ``send``, ``new_group``...; one name for all forms of a call.
    ``shapes, dtypes``  of the tensors handed in.
    ``typed``           the first of them as it is printed, with its type where that is known.
    ``op``              the reduction; empty where nothing is reduced.
    ``root``            the rank of the world that gives or gets all; None if there is none.
    ``sends, receives`` numbers of elements to and from each member, in the group's order; None: not comparable.
    ``peer, tag``       the other rank of a message; None for a receive from anybody.
    ``members``         the ranks of a group that is made.
    ``blocking``        the rank waits here until the others have come.
    ``transition``      of a typed collective, the placements before and after: ``P->I``.
    """

    kind: str
    group: TracedGroup
    location: SourceLocation | None = None
    shapes: tuple[tuple[int, ...], ...] = ()
    dtypes: tuple[str, ...] = ()
    typed: str = ""
    op: str = ""
    root: int | None = None
    sends: tuple[int, ...] | None = None
    receives: tuple[int, ...] | None = None
    peer: int | None = None
    tag: int = 0
    members: tuple[int, ...] = ()
    blocking: bool = True
    transition: str = field(default="", compare=False)

    @property
    def is_message(self) -> bool:
        return self.kind in ("send", "recv")

    @property
    def what(self) -> str:
        """The call without its group: ``all_reduce(sum) of f32[4]``."""
        if self.kind == "new_group":
            return f"new_group({list(self.members)})"
        text = f"{self.kind}({self.op})" if self.op else self.kind
        more = len(self.shapes) - 1
        text += f" of {self.typed}" + (f" and {more} more" if more > 0 else "") if self.typed else ""
        if self.kind == "send":
            return f"{text} to rank {self.peer}"
        if self.kind == "recv":
            return f"{text} from " + ("any rank" if self.peer is None else f"rank {self.peer}")
        return text if self.root is None else f"{text} with root {self.root}"

    def __str__(self) -> str:
        if self.is_message or self.kind == "new_group":
            return self.what
        return f"{self.what} over {self.group.name or ranks_text(self.group.ranks)}"


@dataclass(frozen=True, slots=True)
class Wait:
    """A rank waits until these of its own calls, by position among its events, are done."""

    events: tuple[int, ...]
    location: SourceLocation | None = None


class Ending(enum.Enum):
    """How a rank's part of the job ends, as others see it who wait for it."""

    FINISHED = "has finished"
    RAISED = "has raised"
    DIED = "has died"
    BUSY = "is still busy elsewhere"
    CUT = "was cut off"
    """By us, because the ranks wait for each other: what it would have done next is not known."""


@dataclass(frozen=True, slots=True)
class End:
    """``text`` adds to the words of ``how``, e.g. the exception; ``location`` is where."""

    how: Ending = Ending.FINISHED
    text: str = ""
    location: SourceLocation | None = None

    def __str__(self) -> str:
        return f"{self.how.value} {self.text}".rstrip()


@dataclass(frozen=True, slots=True)
class Trace:
    """Everything that one rank asked of the others.

    ``threads``  a number for the thread of each event; empty: one has issued all.
    """

    rank: int
    events: Sequence[TracedCall | Wait] = ()
    end: End = End()
    threads: Sequence[int] = ()

    def exchanges(self) -> Iterator[TracedCall]:
        """The collectives and messages, without the making of groups."""
        return (event for event in self.events if isinstance(event, TracedCall) and event.kind != "new_group")


class CutOff(BaseException):
    """This rank waits for others that never come. Not an Exception: a program that catches those is not to go on."""
