"""What do global types say of a program that writes no types and is clean with local ones?

Local types know no scale of a mean of what varies, nor what an operator does along a dim that is sharded. Where a
sampler has dealt out the batches, their dims are known all the same; so the program runs once more, in a new process,
with global types. A gradient that they find on another scale is a finding. What else they refuse may be meant, as the
statistics of a rank's own batch are: it is not judged.
"""

from __future__ import annotations

from dataclasses import replace

from shardwise.checker.operators.scale_lost import SCALE_OVER
from shardwise.diagnostics.finding import Finding, absolute_root, location_text
from shardwise.diagnostics.result import ExitCode, RunResult
from shardwise.host.kept_process import KeptProcess
from shardwise.host.program import Program

from .further_run import further_run
from .run import CheckOptions, check_program

OF_SCALE = frozenset({"SW150", "SW151", "SW152", "SW616"})
OF_PENDING_SUMS = frozenset({"SW112", "SW113", "SW114"})
COUNTS = ("i", "u", "b8")
"""How types of whole numbers and truth values begin."""
SAID = "found in a second run, with global types (--global): they know which dims of the batches are sharded"


def asks_global_types(result: RunResult, options: CheckOptions) -> bool:
    """Whether a clean ``result`` rests on local types alone, though more is known of the data."""
    coverage = result.coverage
    return (
        options.local
        and options.observe
        and options.launched is None
        and result.exit_code is ExitCode.CLEAN
        and bool(coverage.own_data)
        and all(one.said for one in coverage.own_data)
        and not coverage.says_types
    )


def with_global_types(program: Program, options: CheckOptions, result: RunResult, other: KeptProcess) -> RunResult:
    """``result``, and what a run with global types adds to it; as it is if there can be no such run."""
    second = further_run(other, check_program, program, replace(options, local=False), "with global types")
    if second is None or second.stopped is not None:
        return result
    of_scale = [replace(one, facts=(*one.facts, SAID)) for one in second.errors if one.code in OF_SCALE]
    refused = [] if of_scale else [_sentence(one, absolute_root(None)) for one in second.errors]
    coverage = replace(result.coverage, refused_globally=tuple(dict.fromkeys(refused)))
    known = {(one.what, one.location) for one in result.lost}
    lost = [one for one in second.lost if one.what.startswith(SCALE_OVER) and (one.what, one.location) not in known]
    return replace(result, findings=(*result.findings, *of_scale), lost=(*result.lost, *lost), coverage=coverage)


def _sentence(finding: Finding, root: str) -> str:
    location = finding.location
    where = "" if location is None else f", {location_text(location, root)}"
    return f"{finding.message} ({finding.code}{where}){_own_part(finding)}"


def _own_part(finding: Finding) -> str:
    """What it comes to where a rank uses its part of a sum that one device has as a whole, as a count of its tokens.

    ``loss.sum() / mask.sum().clamp(min=1)`` is a mean over a rank's own tokens. The mean of such means, which a wrapper
    takes, is that over all tokens where the counts are equal.
    """
    pending = [one for one in finding.operands if f"{finding.axis}: P" in one.type]
    if finding.code not in OF_PENDING_SUMS or not pending:
        return ""
    name, type = pending[0].name, pending[0].type
    if not type.startswith(COUNTS):
        return f": each rank goes by its own {name}, and one device by their sum"
    return f": each rank goes by its own {name}, and one device by all, which is the same only where ranks count alike"
