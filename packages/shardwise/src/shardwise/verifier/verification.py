"""What is verified, and how; and what two runs of it have shown. Handed through all the runs that a verdict takes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from shardwise.diagnostics.errors import SpmdValueError
from shardwise.diagnostics.result import RunResult

from .comparison.compare import compare
from .distance.numbers import Numbers
from .distance.spread import NoneMoved
from .records.failure import Failure
from .records.options import VerifyOptions
from .records.record import RankRun
from .records.reference import Reference
from .records.rounded import Spread
from .records.subject import Subject
from .runs.one_rank import merged_types, shown_mesh, with_derivatives
from .runs.processes import alone_again, run_both
from .text import Verdict


@dataclass(frozen=True)
class Verification:
    """A program to verify.

    ``mesh``        axes with their sizes, outermost first.
    ``references``  a file with the run on one rank, which is then not run again.
    ``against``     what the mesh is compared with in place of the program's own run on one rank.
    ``stage``       is told what is being done.
    ``before``      what the program's runs were, before one rank was given what the ranks draw; None if it was not.
    """

    subject: Subject
    mesh: Mapping[str, int]
    options: VerifyOptions
    references: str = ""
    against: Reference | None = None
    stage: Callable[[str], None] = lambda text: None
    before: Compared | None = None

    def require_mesh(self) -> None:
        """Errors: SW903 for what is no mesh."""
        for name, size in self.mesh.items():
            if not isinstance(size, int) or isinstance(size, bool) or size < 1:
                raise SpmdValueError(f"axis {name} has size {size!r}, which is not a number of ranks", code="SW903")
        if not self.mesh:
            raise SpmdValueError("a mesh needs at least one axis, got none", code="SW903", help=('mesh={"dp": 2}',))

    @property
    def may_change(self) -> bool:
        """Whether the run on one rank is the program's own, so that it can be run otherwise."""
        return not self.references and self.against is None

    def with_options(self, options: VerifyOptions) -> Verification:
        return replace(self, options=options)

    def run_both(self, *, fed: bool = False) -> tuple[list[RankRun], Failure | None]:
        """What the ranks record, and behind them the one rank; see ``processes.run_both``."""
        return run_both(self.subject, self.mesh, self.options, self.stage, self.references, fed=fed)

    def alone_again(self, said: str) -> RankRun | None:
        """Once more what the mesh is compared with; None where that does not come to its end."""
        return alone_again(self.against or self.subject, self.mesh, self.options, self.stage, said)

    def compared(self, ranks: Sequence[RankRun], alone: RankRun, spread: Spread | None) -> Numbers:
        return compare(ranks, alone, rtol=self.options.rtol, mesh=self.mesh, spread=spread)

    def verdict(self, types: RunResult, numbers: Numbers | None = None, failure: Failure | None = None) -> Verdict:
        return Verdict(str(self.subject), shown_mesh(self.mesh), types, numbers or Numbers(), failure)


@dataclass(frozen=True)
class Compared:
    """Two runs that came to their end, and how they compare.

    ``ranks``  of the mesh, in rank order.
    ``alone``  what they are compared with.
    ``own``    the program's own run on one rank: ``alone``, unless the program is compared with another.
    ``types``  what the checker found while the ranks ran.
    """

    ranks: Sequence[RankRun]
    alone: RankRun
    own: RankRun
    types: RunResult
    numbers: Numbers

    @classmethod
    def first(cls, asked: Verification, runs: Sequence[RankRun], own: RankRun) -> Compared:
        """``runs``, the last of which is the one on one rank, before anything is known of roundings."""
        *ranks, alone = runs
        types = with_derivatives(merged_types([run.types for run in ranks]), alone.types)
        numbers = asked.compared(ranks, alone, None if asked.references else NoneMoved())
        return cls(ranks, alone, own, types, numbers)

    def again(self, asked: Verification, spread: Spread | None) -> Compared:
        """The same runs, compared with what is known now."""
        return self.with_numbers(asked.compared(self.ranks, self.alone, spread))

    def with_numbers(self, numbers: Numbers) -> Compared:
        return replace(self, numbers=numbers)
