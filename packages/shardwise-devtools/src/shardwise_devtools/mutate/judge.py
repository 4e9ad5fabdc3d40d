"""What became of each mutant: did its numbers go wrong, and did the checker say so? Verdicts of others put together."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass

from .idioms import COERCIONS
from .operators import Mutant

VERIFY = "verify"


class Fate(enum.Enum):
    """What a mutant teaches about the checker."""

    KILLED = "killed"
    """Its numbers are wrong, and the checker says so."""
    VERIFIED = "found by verify"
    """Its numbers are wrong; the checker accepts it, and ``shardwise verify`` says so."""
    SURVIVED = "survived"
    """Its numbers are wrong, and neither says so."""
    HARMLESS = "harmless"
    """Its numbers are right, and the checker accepts it."""
    FALSE_ALARM = "false alarm"
    """Its numbers are right, and the checker rejects it."""
    MISDECLARED = "misdeclared"
    """It runs bit for bit as the program does, and differs only in what it declares, which the checker rejects: a
    transition whose name no code reads, an axis that only the types know of."""
    LOUD = "loud"
    """It raises or hangs by itself: no silent mistake, whatever the checker says."""


class Numbers(enum.Enum):
    """How a mutant on the mesh compares with the same mutant on one rank."""

    EQUAL = "equal"
    DIFFERENT = "different"
    CRASHED = "crashed"


@dataclass(frozen=True)
class Measured:
    """What running showed. ``detail`` is a line for the report.

    ``unchanged``  on the mesh every tensor is bit for bit what it is in the program without the mistake.
    """

    numbers: Numbers
    detail: str = ""
    unchanged: bool = False


@dataclass(frozen=True)
class Said:
    """What the checker said in one mode: the findings, as ``SW201 at train.py:57``; empty if it accepts. In the mode
    ``verify`` it is what ``shardwise verify`` says, which is asked where the checker accepts wrong numbers."""

    mode: str
    findings: tuple[str, ...] = ()


Verdict = tuple[Measured, tuple[Said, ...]]
"""What running a mutant shows, and what the checker says of it."""


@dataclass(frozen=True)
class Judged:
    """One mutant with what was measured and said about it."""

    mutant: Mutant
    measured: Measured
    said: tuple[Said, ...]
    reason: str = ""
    """Why a survivor or a false alarm is what it is, from the list of the explained ones."""

    @property
    def rejected(self) -> bool:
        """By the checker, in some mode."""
        return any(said.findings for said in self.said if said.mode != VERIFY)

    @property
    def verified(self) -> bool:
        """To be wrong, by ``shardwise verify``."""
        return any(said.findings for said in self.said if said.mode == VERIFY)

    @property
    def fate(self) -> Fate:
        if self.measured.numbers is Numbers.CRASHED:
            return Fate.LOUD
        if self.measured.numbers is Numbers.DIFFERENT:
            return Fate.KILLED if self.rejected else Fate.VERIFIED if self.verified else Fate.SURVIVED
        if not self.rejected:
            return Fate.HARMLESS
        if self.measured.unchanged and self._only_declares:
            return Fate.MISDECLARED
        return Fate.FALSE_ALARM

    @property
    def _only_declares(self) -> bool:
        """The mistake is in words for the checker: src, dst, an axis of a pending sum, a coercion."""
        mutant = self.mutant
        if mutant.operator in ("drop", "double", "order", "late"):
            return any(f"{name}(" in mutant.before for name in COERCIONS)
        return mutant.operator in ("axis", "dim", "transition", "kind", "letter", "blocks")


@dataclass(frozen=True)
class Tally:
    """The counts of a report."""

    judged: Sequence[Judged]

    def of(self, fate: Fate) -> list[Judged]:
        return [one for one in self.judged if one.fate is fate]

    def count(self, fate: Fate) -> int:
        return len(self.of(fate))

    @property
    def silent(self) -> int:
        """Mutants whose numbers go wrong without a word."""
        return self.count(Fate.KILLED) + self.count(Fate.VERIFIED) + self.count(Fate.SURVIVED)

    @property
    def survival(self) -> float:
        """The share of the silent mutants that nothing finds; 0 if there are none."""
        return self.count(Fate.SURVIVED) / self.silent if self.silent else 0.0

    @property
    def unexplained(self) -> list[Judged]:
        """Survivors and false alarms that nobody has given a reason for."""
        return [one for fate in (Fate.SURVIVED, Fate.FALSE_ALARM) for one in self.of(fate) if not one.reason]
