"""What came of comparing the numbers? Values only, made by ``compare.py``, shown by ``text.py`` and ``formats.py``."""

from __future__ import annotations

import enum
from collections import Counter
from dataclasses import dataclass

from shardwise.diagnostics.finding import Finding
from shardwise.diagnostics.printing.limits import counted
from shardwise.diagnostics.source_location import SourceLocation
from shardwise.interop.running.recording import Key

from .difference import Difference


class Against(enum.Enum):
    """What a disagreement is with."""

    ALONE = "one rank"
    """The run on one rank."""
    RANKS = "another rank"
    """Another rank, which should hold the same bits."""
    SHAPE = "shape"
    """The shapes say already that the claim is wrong."""


@dataclass(frozen=True)
class ValueDisagreement:
    """A tensor that is not what it is claimed to be.

    ``claim``       its typed shape; dtype and shape alone where nobody has said a type.
    ``against``     what it disagrees with.
    ``rank``        the first rank that holds a wrong element; for a pending sum the first of those who contribute.
    ``ranks``       all ranks that the element is made from.
    ``index``       of the element in that rank's tensor; ``whole_index`` in the tensor put together.
    ``difference``  the numbers; None where shapes disagree.
    ``said``        the disagreement in a sentence, without the numbers.
    ``hint``        what a clean factor suggests; empty if there is none.
    ``near``        it is known how the tensor lies, and its values are nearly right.
    ``use``         of the input or output of a module, where the program calls it.
    """

    key: Key
    claim: str
    against: Against
    rank: int
    ranks: tuple[int, ...]
    index: tuple[int, ...]
    whole_index: tuple[int, ...]
    difference: Difference | None
    said: str
    hint: str = ""
    near: bool = False
    use: SourceLocation | None = None


@dataclass(frozen=True)
class FirstInBackward:
    """The wrong gradient that backward computes first in its step.

    ``use``    where the program uses the parameter.
    ``right``  names of parameters that are used later, whose gradients are right.
    """

    wrong: ValueDisagreement
    use: SourceLocation | None
    right: tuple[str, ...]


@dataclass(frozen=True)
class NotCompared:
    """A record that could not be compared with the run on one rank, and why."""

    key: Key
    claim: str
    reason: str


@dataclass(frozen=True)
class Parting:
    """From this record on the two runs need not agree, because of what happened there: ``reason``."""

    key: Key
    reason: str
    advice: str = ""

    @property
    def remedy(self) -> str:
        """What to do so that the two runs do the same work: ``advice``, or what the kind of the record says."""
        return self.advice or _REMEDIES.get(self.key.kind, _REMEDIES["parameter"] if self.key.kind == "trained" else "")


_REMEDIES = {
    "drawn": "seed every rank alike and draw in full before cutting, and set dropout to zero",
    "input": "give every rank its share of one batch (a batch size of BATCH // world size)",
    "parameter": "draw initial weights in full from one seed, before cutting them",
    "gradient": "take as many steps on every mesh",
    "declared": "draw the data in full from one seed on every rank, and take each rank's share of it",
}


GRADIENTS = ("gradient", "left")
_AFTER_MODULES = ("loss", "output", "clip", "read", "trained", "updated", *GRADIENTS)
"""What is recorded of a step after its modules have been called."""


@dataclass(frozen=True)
class Numbers:
    """The verdict on the numbers.

    ``equal``         tensors found equal to the run on one rank.
    ``replicas``      tensors of which only the equality between ranks could be checked, and holds.
    ``disagreements`` in program order.
    ``not_compared``  in program order.
    ``parting``       where the runs part, if they do.
    ``origin``        the first operation whose result disagrees, where that comes before everything that is declared.
    ``module``        the first module whose output no layout explains, in the order in which modules end.
    ``backward``      the wrong gradient that backward computes first, where that is not the first disagreement.
    ``gradients``     how many of ``equal`` are gradients.
    ``questions``     what else leaves the verdict open.
    ``cause``         what global types say of the program whose numbers disagree.
    ``notes``         what else there is to say, in sentences.
    ``why``           the likely reason in a few words, where what was noted beside the tensors gives one; ``why_at``
                      its place.
    """

    equal: int = 0
    replicas: int = 0
    disagreements: tuple[ValueDisagreement, ...] = ()
    not_compared: tuple[NotCompared, ...] = ()
    parting: Parting | None = None
    origin: ValueDisagreement | None = None
    module: ValueDisagreement | None = None
    backward: FirstInBackward | None = None
    gradients: int = 0
    notes: tuple[str, ...] = ()
    questions: tuple[str, ...] = ()
    cause: Finding | None = None
    why: str = ""
    why_at: SourceLocation | None = None

    @property
    def lead(self) -> ValueDisagreement | None:
        """What is nearest to the mistake: a module whose output is wrong before any loss or gradient is, or the
        gradient behind which backward goes wrong; else what comes first.
        """
        first = next(iter(self.disagreements), None)
        if self.origin is not None or first is None:
            return self.origin
        if self.module is not None and self.module.use is not None and first.key.kind in _AFTER_MODULES:
            return self.module
        backward = self.backward
        if backward is not None and backward.right and backward.use is not None and first.key.kind in GRADIENTS:
            return backward.wrong
        return first

    @property
    def others(self) -> tuple[ValueDisagreement, ...]:
        """All other disagreements, in program order."""
        return tuple(one for one in self.disagreements if one is not self.lead)

    @property
    def open_questions(self) -> tuple[str, ...]:
        """Why the numbers are no verdict on the whole program: what parts the runs, losses and gradients left out.

        A loss that was left out is no question where gradients were compared: they say more.
        """
        kinds = ("gradient",) if self.gradients else ("loss", "gradient")
        left_out = Counter(one.key.kind for one in self.not_compared if one.key.kind in kinds)
        losses, gradients = left_out["loss"], left_out["gradient"]
        told = [f"{losses} loss{'' if losses == 1 else 'es'}"] if losses else []
        told += [counted(gradients, "gradient")] if gradients else []
        verb = "was" if losses + gradients == 1 else "were"
        reasons = [f"{' and '.join(told)} {verb} not compared"] if told else []
        return (
            *([f"the runs part: {self.parting.reason}"] if self.parting is not None else []),
            *reasons,
            *self.questions,
        )

    @property
    def compared(self) -> int:
        """Tensors that anything was found out about."""
        return self.equal + self.replicas + len(self.disagreements)
