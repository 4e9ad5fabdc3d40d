"""What is wrong with the recorded collectives of a job: one verdict, and the answer that all of them make."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tracewise.model.collectives import Recording
from tracewise.model.entities import Frame
from tracewise.ranks.wording import ranks_text

# The most severe first: it is the headline.
VERDICTS = ("operation", "size", "missing", "unfinished", "message", "late")


@dataclass(slots=True)
class Verdict:
    """One thing that is wrong. ``ranks`` are at fault, or not to be told from the others if ``is_tie``.

    ``what`` refines the kind: skipped, extra, swapped, replaced, group, elements, dtype.
    """

    kind: str
    text: str
    group: str
    seq: int
    ranks: list[int]
    what: str = ""
    is_tie: bool = False
    time_ns: int = 0
    op: str = ""
    site: Frame | None = None

    def as_json(self) -> dict[str, Any]:
        return {
            "verdict": self.kind, "what": self.what, "text": self.text, "group": self.group, "collective": self.seq,
            "ranks": self.ranks, "tie": self.is_tie, "op": self.op, "site": self.site._asdict() if self.site else None,
        }  # fmt: skip


@dataclass
class CollectiveAnswer:
    """What the recorded collectives of a job say."""

    recording: Recording
    verdicts: list[Verdict] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    skews_ns: dict[int, float] = field(default_factory=dict)

    @property
    def compared(self) -> int:
        """Calls that were compared; 0 means that there is no verdict."""
        return sum(len(s) for of_group in self.recording.schedules.values() for s in of_group.values())

    @property
    def is_whole(self) -> bool:
        """Whether there was anything to compare, and all of it was understood."""
        return self.compared > 0 and len(self.recording.ranks) > 1 and self.recording.health.is_clean

    @property
    def headline(self) -> str:
        if self.verdicts:
            return self.verdicts[0].text
        if not self.compared:
            return "No collective was recorded: cannot tell."
        count = len(self.recording.ranks)
        if count < 2:
            return f"Only {ranks_text(self.recording.ranks)} left a file: nothing to compare it with."
        damage = "" if self.is_whole else " in what could be read"
        return (
            f"All {count} ranks agree{damage}: {self.compared} collectives over {len(self.recording.schedules)} groups."
        )

    def as_json(self) -> dict[str, Any]:
        return {
            "source": self.recording.source,
            "ranks": sorted(self.recording.ranks),
            "collectives": self.compared,
            "headline": self.headline,
            "verdicts": [verdict.as_json() for verdict in self.verdicts],
            "notes": self.notes,
            "clock_offsets_ns": {str(rank): offset for rank, offset in sorted(self.skews_ns.items())},
            "groups": {
                name: {"description": group.description, "ranks": sorted(group.members)}
                for name, group in self.recording.groups.items()
            },
            "health": self.recording.health.as_json(),
        }
