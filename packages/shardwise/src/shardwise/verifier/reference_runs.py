"""What stands in place of the program's own run on one rank: a file recorded once, or an independent program."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from shardwise.diagnostics.printing.limits import counted
from shardwise.worlds.failures import RankFailure, RankTimeout

from .comparison.compare import compare
from .records.failure import Failure
from .records.options import VerifyOptions
from .records.record import RankRun, initial_parameters
from .records.reference import Reference
from .records.references import DECIDE, References, save
from .records.subject import Subject
from .runs.crash import crash_among, lost, unreadable
from .runs.processes import run_ranks
from .verification import Compared, Verification

_ALONE = "on one rank"


def record_references(
    file: str, subject: Subject, sizes: Mapping[str, int], options: VerifyOptions
) -> tuple[Failure | None, str]:
    """Run on one rank and write what it computes into ``file``; why that failed, and what there is to say of it."""
    alone = _run_alone(subject, sizes, options, _ALONE)
    if isinstance(alone, Failure):
        at = "" if alone.location is None else f" at {alone.location}"
        said = f"the run {alone.where} did not come to its end{at}: {alone.text}"
        return alone, "\n".join([said, *alone.details.splitlines()])
    made = References(str(subject), {name: getattr(options, name) for name in DECIDE}, alone)
    save(made, file)
    return None, f"{file}: {counted(len(alone.entries), 'record')} of the run on one rank, {made.nbytes / 1e6:.1f} MB"


def reference_run(asked: Verification, against: Reference, own: RankRun) -> RankRun | Failure:
    """The run of ``against``, which is to have parameters of ``own``, the program's run on one rank."""
    asked.stage(f"running {against}")
    where = f"of {against}"
    alone = _run_alone(against, dict.fromkeys(asked.mesh, 1), replace(asked.options, show=False), where)
    if isinstance(alone, Failure) or {*initial_parameters(alone)} & {*initial_parameters(own)}:
        return alone
    here, there = (", ".join(list(initial_parameters(run))[:3]) or "none" for run in (own, alone))
    text = f"it has no parameter of the program: its parameters are {there}; those of the program are {here}"
    return Failure(where, text)


def reference_note(asked: Verification, seen: Compared) -> str:
    """What is meant by one rank, and whether the program's own run on one rank disagrees with it too."""
    said = f"one rank is {asked.against}, in place of the program's own run on one rank"
    if not seen.numbers.disagreements:
        return said
    same = compare([seen.own], seen.alone, rtol=None, mesh={"rank": 1}, spread=None).disagreements
    return said + (
        "; that disagrees with it too, so the mistake is not one of the mesh" if same else "; that agrees with it"
    )


def _run_alone(subject: Subject, sizes: Mapping[str, int], options: VerifyOptions, where: str) -> RankRun | Failure:
    """What one rank records, or why it did not come to its end."""
    try:
        (alone,) = run_ranks(subject, sizes, options)
    except SyntaxError as error:
        return unreadable(error)
    except (RankFailure, RankTimeout) as error:
        return lost(error, where)
    return crash_among([alone], where, 1) or alone
