"""What several ranks of one program found, taken together: one mistake is one finding, whoever says it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from .coverage import of_ranks
from .finding import Finding
from .printing.ranks import ranks_text
from .result import IgnoreSeen, Noted, RunResult, Stop, StopReason
from .run_record import joined
from .source_location import SourceLocation


def merge(results: Mapping[int, RunResult], found: Sequence[Finding] = (), *, collectives: int = 0) -> RunResult:
    """The results of several ranks as one; ``found`` is about all of them and stands first.

    Numbers of operations are those of all ranks together; numbers of times at one location, and of calls without a
    rule, those of the rank with the most.
    """
    ranks = tuple(sorted(results))
    runs = [results[rank] for rank in ranks]
    return RunResult(
        findings=(*found, *_findings(results)),
        checked_ops=sum(run.checked_ops for run in runs),
        unchecked_ops=sum(run.unchecked_ops for run in runs),
        no_rule_ops=tuple(_most(dict(run.no_rule_ops) for run in runs).most_common()),
        trusted=_most_noted(run.trusted for run in runs),
        lost=_most_noted(run.lost for run in runs),
        unchecked=_most_noted(run.unchecked for run in runs),
        not_followed=tuple(dict.fromkeys(part for run in runs for part in run.not_followed)),
        stopped=_stopped(results),
        duration_s=max((run.duration_s for run in runs), default=0.0),
        mesh=next((run.mesh for run in runs if run.mesh), ""),
        own_mesh=next((run.own_mesh for run in runs if run.own_mesh), ""),
        script=next((run.script for run in runs if run.script), ""),
        ranks=ranks,
        collectives=collectives,
        coverage=of_ranks({rank: run.coverage for rank, run in results.items()}),
        record=joined(records) if (records := [run.record for run in runs if run.record is not None]) else None,
        ignores=_ignores(runs),
    )


def _ignores(runs: Iterable[RunResult]) -> tuple[IgnoreSeen, ...]:
    """Every ignore comment that a rank has seen; reached if any of them has reached it."""
    ran: dict[SourceLocation, bool] = {}
    for one in (one for run in runs for one in run.ignores):
        ran[one.location] = one.ran or ran.get(one.location, False)
    return tuple(IgnoreSeen(location, reached) for location, reached in ran.items())


def _findings(results: Mapping[int, RunResult]) -> Iterable[Finding]:
    said: dict[object, dict[int, Finding]] = {}
    for rank in sorted(results):
        for finding in results[rank].findings:
            key = (finding.code, finding.location or finding.message, finding.op, finding.axis)
            said.setdefault(key, {}).setdefault(rank, finding)
    for by_rank in said.values():
        first = next(iter(by_rank.values()))
        only = () if len(by_rank) == len(results) else tuple(by_rank)
        yield replace(first, count=max(finding.count for finding in by_rank.values()), ranks=only)


def _most(counts: Iterable[Mapping[str, int]]) -> Counter[str]:
    most: Counter[str] = Counter()
    for each in counts:
        most |= Counter(each)
    return most


def _most_noted(lists: Iterable[Iterable[Noted]]) -> tuple[Noted, ...]:
    counts: dict[tuple[str, SourceLocation | None], int] = {}
    for notes in lists:
        for one in notes:
            counts[one.what, one.location] = max(one.count, counts.get((one.what, one.location), 0))
    return tuple(Noted(what, location, count) for (what, location), count in counts.items())


def _stopped(results: Mapping[int, RunResult]) -> Stop | None:
    """An interruption, if there was one; else the stop that most ranks share, with their numbers if not all do."""
    stops = {rank: run.stopped for rank, run in sorted(results.items()) if run.stopped is not None}
    for stop in stops.values():
        if stop.reason is StopReason.INTERRUPTED:
            return stop
    if not stops:
        return None
    shared = Counter(stops.values()).most_common(1)[0][0]
    ranks = [rank for rank, stop in stops.items() if stop == shared]
    return shared if len(ranks) == len(results) else replace(shared, text=f"{shared.text} on {ranks_text(ranks)}")
