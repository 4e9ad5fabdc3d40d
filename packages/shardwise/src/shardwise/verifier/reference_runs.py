"""What stands in place of the program's own run on one rank: a file recorded once, or an independent program."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
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
from .roundings import measured, rounding_to_record
from .runs.crash import crash_among, lost, unreadable
from .runs.processes import alone_again, run_ranks
from .verification import Compared, Verification

_ALONE = "on one rank"


def record_references(
    file: str,
    subject: Subject,
    sizes: Mapping[str, int],
    options: VerifyOptions,
    stage: Callable[[str], None] = lambda text: None,
) -> tuple[Failure | None, str]:
    """Run on one rank and write what it computes into ``file``; why that failed, and what there is to say of it.

    In low precision it runs a few times more with roundings, as long as ``options.timeout_s`` is not over. ``stage`` is
    told what is being done.
    """
    started_s = time.perf_counter()
    stage(f"running {_ALONE}")
    alone = _run_alone(subject, sizes, options, _ALONE)
    if isinstance(alone, Failure):
        at = "" if alone.location is None else f" at {alone.location}"
        said = f"the run {alone.where} did not come to its end{at}: {alone.text}"
        return alone, "\n".join([said, *alone.details.splitlines()])
    rounding, of_products = rounding_to_record(alone)
    if rounding is not None and options.rtol is None:
        if of_products:  # what is compared with it is as coarse
            alone.dtypes.add(rounding)
        until_s = started_s + options.timeout_s

        def again(changed: VerifyOptions, said: str) -> RankRun | None:
            left_s = until_s - time.perf_counter()
            return alone_again(subject, sizes, replace(changed, timeout_s=left_s), stage, said) if left_s > 0 else None

        alone.spread = measured(alone, options, rounding, again, of_products=of_products)
    made = References(str(subject), {name: getattr(options, name) for name in DECIDE}, alone)
    save(made, file)
    rounded = "" if alone.spread is None else "; how far roundings move them was measured"
    records = counted(len(alone.entries), "record")
    return None, f"{file}: {records} of the run on one rank, {made.nbytes / 1e6:.1f} MB{rounded}"


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
