"""How are several ranks of a program checked and compared? Each in a process, and their results become one."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Mapping
from dataclasses import replace

from shardwise.checker.patching.installation import rehearse
from shardwise.diagnostics.finding import Finding
from shardwise.diagnostics.formats import from_json, to_json
from shardwise.diagnostics.merged_results import merge
from shardwise.diagnostics.result import NO_EXCEPTION, RunResult, Stop, StopReason
from shardwise.host.program import Program
from shardwise.uniformity.calls import End, Ending, Trace, TracedCall
from shardwise.uniformity.child_link import ChildLink
from shardwise.uniformity.congruence import equal_draws, incongruent
from shardwise.uniformity.expressions import EqualValue
from shardwise.uniformity.rank_processes import Coordinator, RankOutcome
from shardwise.uniformity.replay import compare
from shardwise.worlds.seeding import origin, seed_rank

from ..options.ranks_option import RankChoice
from .progress import progress
from .run import CheckOptions, check_program, signals

_SHOWN_OUTPUT_LINES = 40


def check_ranks(
    program: Program, options: CheckOptions, choice: RankChoice, timeout_s: float | None = None
) -> tuple[RunResult, list[Trace]]:
    """The results of all chosen ranks as one, with what keeps them from running to their ends; and their traces."""

    def run(rank: int, link: ChildLink) -> tuple[End, str]:
        import torch

        from shardwise.uniformity.collective_trace import CollectiveRecorder

        torch.set_num_threads(1)  # the fork has none of the threads that the pool believes in
        seed_rank(start, rank)
        own = replace(options, rank=rank, plain_progress=False)
        result = check_program(program, own, CollectiveRecorder(link, rank))
        return _end(result), to_json(result)

    _load_what_all_need(options)
    mesh, start = options.mesh, origin()
    coordinator = Coordinator(
        run,
        lambda sizes: choice.ranks(options.world_size, mesh.sizes if mesh is not None else sizes),
        early=choice.word != "corners" or mesh is not None,
        jobs=os.cpu_count() or 1,
        timeout_s=timeout_s,
    )
    interrupted = threading.Event()
    with signals(interrupted), progress(coordinator.status, plain=options.plain_progress):
        outcomes = coordinator.collect()
    results = {rank: _result(outcome, program) for rank, outcome in outcomes.items()}
    traces = [outcome.trace for outcome in outcomes.values()]
    if not outcomes:  # interrupted before one was started
        raise KeyboardInterrupt
    found = () if coordinator.interrupted else compare(traces)
    results, found = _with_congruence(outcomes, results, found)
    _tell_failures(outcomes)
    calls = [event for trace in traces for event in trace.events if isinstance(event, TracedCall)]
    merged = merge(results, found, collectives=sum(call.kind != "new_group" for call in calls))
    if coordinator.interrupted:
        merged = replace(merged, stopped=Stop(StopReason.INTERRUPTED))
    return merged, traces


def _with_congruence(
    outcomes: Mapping[int, RankOutcome], results: dict[int, RunResult], found: tuple[Finding, ...]
) -> tuple[dict[int, RunResult], tuple[Finding, ...]]:
    """What the ranks compute differently is found too; that their random numbers are equal is proven, or not."""
    told = {rank: [e for e in outcome.told if isinstance(e, EqualValue)] for rank, outcome in outcomes.items()}
    proven = equal_draws(told)
    settled = {
        rank: replace(
            result,
            findings=tuple(f for f in result.findings if f.code != "SW121" or (f.location, f.axis) not in proven),
        )
        for rank, result in results.items()
    }
    known = {(one.location, one.axis) for result in settled.values() for one in result.findings if one.code == "SW121"}
    apart = [one for one in incongruent(told) if one.code != "SW509" or (one.location, one.axis) not in known]
    return settled, (*found, *apart)


def _load_what_all_need(options: CheckOptions) -> None:
    """Once, before the processes part: tensors without storage bring hundreds of modules with them."""
    import torch

    import shardwise.uniformity.collective_trace  # noqa: F401
    from shardwise.interop.torch_compat import fake_tensor_mode

    if options.fake:
        with fake_tensor_mode():
            torch.ones(1).add(1)
    if options.device == "meta":
        torch.ones(1, device="meta").add(1)
    rehearse()


def _end(result: RunResult) -> End:
    stop = result.stopped
    if stop is None:
        return End()
    return End(Ending.RAISED if stop.reason is StopReason.SCRIPT_ERROR else Ending.CUT, stop.text, stop.location)


def _result(outcome: RankOutcome, program: Program) -> RunResult:
    """What a rank found; of one that ended without a word, that it did."""
    end = outcome.trace.end
    if outcome.report is None:
        how = f"{end.how.value.removeprefix('has ')} {end.text}".strip()
        stopped = Stop(StopReason.SCRIPT_ERROR, f"{NO_EXCEPTION}{how}")
        until_then = tuple(one for one in outcome.told if isinstance(one, Finding))
        return RunResult(findings=until_then, script=str(program), stopped=stopped)
    result = from_json(outcome.report)
    if end.how is Ending.BUSY:
        return replace(result, stopped=Stop(StopReason.SCRIPT_ERROR, f"{NO_EXCEPTION}{end}", end.location))
    return result


def _tell_failures(outcomes: dict[int, RankOutcome]) -> None:
    """What the ranks that failed printed, one of each kind; the first rank's output has been seen already."""
    first = min(outcomes)
    seen = {outcomes[first].trace.end}
    for rank, outcome in outcomes.items():
        end = outcome.trace.end
        if end.how in (Ending.RAISED, Ending.DIED) and end not in seen and outcome.output.strip():
            seen.add(end)
            lines = outcome.output.rstrip().splitlines()[-_SHOWN_OUTPUT_LINES:]
            print(f"shardwise: rank {rank} {end}; it printed:", *lines, sep="\n  ", file=sys.stderr)
