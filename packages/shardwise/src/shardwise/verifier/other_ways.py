"""Where the two runs part, in which other way could they be run so that they need not?

Each way is tried in turn, and the first that has an answer gives the verdict:

    the ranks draw weights of their own          one rank starts from theirs, put together
    the ranks draw batches, or random numbers    one rank is given what all of them draw
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Protocol

from .layouts.initial_weights import InitialWeights, put_together
from .records.intervention import Intervention
from .text import Verdict
from .verification import Compared, Verification

STARTED = "the ranks draw other initial weights than one rank does: it was given theirs, put together"


def is_open(asked: Verification, seen: Compared) -> bool:
    """Whether other ways are looked for: the runs part, and not because one batch should have been shared out."""
    shares = any(one.key.kind == "input" for one in seen.numbers.disagreements)  # no feed makes that right
    return asked.may_change and seen.numbers.parting is not None and not shares


class OtherWay(Protocol):
    """A program's two runs, run otherwise."""

    def asked(self) -> Verification:
        """What is verified in this way. SpmdValueError comes of it where the ranks' batches make no global batch."""

    def answer(self, verdict: Verdict) -> Verdict | tuple[str, ...]:
        """The verdict on the program, given that on what was asked; or the questions that are open, if it says any."""


def other_ways(asked: Verification, seen: Compared) -> Iterator[OtherWay]:
    """The ways that are open to a program whose runs part."""
    for way in (FromWeightsOfRanks.of(asked, seen), WithDrawsOfRanks.of(asked, seen)):
        if way is not None:
            yield way


@dataclass(frozen=True)
class FromWeightsOfRanks:
    """One rank starts from the ranks' weights. It must keep them, and not train copies made before.

    What disagrees is no more than a question if it is not certain how shards lie.
    """

    given: Verification
    weights: InitialWeights

    @classmethod
    def of(cls, asked: Verification, seen: Compared) -> FromWeightsOfRanks | None:
        if seen.numbers.disagreements or asked.options.changed is not None:
            return None
        weights = put_together(seen.ranks, seen.alone, asked.mesh)
        return None if weights is None else cls(asked, weights)

    def asked(self) -> Verification:
        changed = Intervention(weights=self.weights.values)
        return self.given.with_options(replace(self.given.options, changed=changed, show=False))

    def answer(self, verdict: Verdict) -> Verdict | tuple[str, ...]:
        numbers = verdict.numbers
        if verdict.failure is not None or numbers.parting is not None or not numbers.equal:
            return ()
        if numbers.disagreements and not self.weights.certain:
            first = numbers.disagreements[0]
            what = f"{first.key.kind} {first.key.name} {first.said}"
            return (f"where one rank starts from the ranks' weights, one after the other, {what}",)
        if numbers.questions:
            return numbers.questions
        return replace(verdict, numbers=replace(numbers, notes=(*numbers.notes, STARTED)))


@dataclass(frozen=True)
class WithDrawsOfRanks:
    """One rank is given what all ranks draw. It answers if nothing was known before, or something is wrong."""

    given: Verification
    seen: Compared

    @classmethod
    def of(cls, asked: Verification, seen: Compared) -> WithDrawsOfRanks | None:
        parting = seen.numbers.parting
        drawn = parting is not None and parting.key.kind in ("drawn", "input")
        if asked.options.feed is not None or not (drawn or any(run.batches.iterated for run in seen.ranks)):
            return None
        return cls(asked, seen)

    def asked(self) -> Verification:
        options = replace(self.given.options, feed=True, show=False)
        return replace(self.given, options=options, before=self.seen)

    def answer(self, verdict: Verdict) -> Verdict | tuple[str, ...]:
        parts = verdict.numbers.parting is not None
        return () if parts or (self.seen.numbers.disagreements and not verdict.numbers.disagreements) else verdict
