"""What does ``verify`` say? Two verdicts side by side: what the types say, and what the numbers say."""

from __future__ import annotations

from dataclasses import dataclass, field

from shardwise.diagnostics.result import ExitCode, RunResult

from .failure import Failure
from .numbers import Numbers
from .text import render_verdict


@dataclass(frozen=True)
class Verdict:
    """A verified program.

    ``types``    what the checker found while the ranks of the mesh ran, all ranks together; of the run on one rank
                 there are no types to check.
    ``numbers``  how the tensors of the mesh compare with those of one rank.
    ``failure``  why there are no numbers; None if both runs came to their end.
    """

    program: str
    mesh: str
    types: RunResult = field(default_factory=RunResult)
    numbers: Numbers = field(default_factory=Numbers)
    failure: Failure | None = None
    duration_s: float = 0.0

    @property
    def exit_code(self) -> ExitCode:
        """Findings of either kind; no verdict if a run failed or nothing was compared; inconclusive if losses or
        gradients were not compared with the run on one rank.
        """
        if self.failure is not None:
            return ExitCode.BROKEN
        if self.types.errors or self.numbers.disagreements:
            return ExitCode.FINDINGS
        if not self.numbers.compared:
            return ExitCode.BROKEN
        return ExitCode.INCONCLUSIVE if self.numbers.open_questions else ExitCode.CLEAN

    @property
    def ok(self) -> bool:
        """True if both verdicts are clean."""
        return self.exit_code is ExitCode.CLEAN

    def __str__(self) -> str:
        return render_verdict(self)
