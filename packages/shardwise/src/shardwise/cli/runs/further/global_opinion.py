"""What do global types say of a program that writes no types and is clean with local ones?

Local types know no scale of a mean of what varies, nor what an operator does along a dim that is sharded. Where a
sampler has dealt out the batches, their dims are known all the same; so the program runs once more, in a new process,
with global types. A gradient that they find on another scale is a finding. What else they refuse may be meant, as the
statistics of a rank's own batch are: it is not judged.

That run is of more than one rank where they have values: a sampler that every rank tells that it is the first, and what
a rank computes by its number, look right on any rank alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from shardwise.checker.collectives.raw_operands import OF_ADDENDS
from shardwise.checker.operators.factories import OF_NUMBERS
from shardwise.checker.operators.scale_lost import OF_MESSAGES, SCALE_OVER, is_of_gradients
from shardwise.checker.parts.micro_batches import OF_CUTS
from shardwise.diagnostics.coverage import Coverage, OwnData
from shardwise.diagnostics.finding import Finding, absolute_root, location_text
from shardwise.diagnostics.printing.limits import counted
from shardwise.diagnostics.printing.ranks import ranks_text
from shardwise.diagnostics.result import ExitCode, RunResult
from shardwise.host.kept_process import KeptProcess
from shardwise.host.program import Program
from shardwise.worlds.absent_objects import OtherRanksNeeded

from ...options.ranks_option import RankChoice
from ..ranks import check_ranks
from ..run import CheckOptions, check_program
from .compared_ranks import has_values, of_each_axis, size_with
from .further_run import further_run
from .numbers_elsewhere import with_known_numbers

OFF_SCALE = "SW616"
OF_SCALE = frozenset({"SW150", "SW151", "SW152", OFF_SCALE})
OF_OWN_MEANS = frozenset({"SW150", "SW151"})
READS, BRANCHES = "SW115", "SW116"
"""A pending sum is read, and each rank goes by its own: with local types that is a branch on what varies."""
OF_PENDING_SUMS = frozenset({"SW112", "SW113", "SW114"})
OF_RANKS = frozenset({"SW501", "SW502", "SW503", "SW504", "SW505", "SW506", "SW507", "SW508", "SW509"})
COUNTS = ("i", "u", "b8")
"""How types of whole numbers and truth values begin."""
_NO_END = "the program does not come to its end when it is run once more ({})"
SAID = "found in a second run, with global types (--global): they know which dims of the batches are sharded"
SAID_OF_RANKS = "found in a second run, on {} (--ranks {})"
SAID_OF_NUMBERS = (
    "found with global types (--global), which know which dims of the batches are sharded, and with the scale of the "
    "numbers that the program writes: they were compared with those of a run on another number of ranks"
)

SAID_OF_MICRO_BATCHES = (
    "found with global types (--global), and by a run on another number of ranks: micro-batches are as long there, and "
    "the more ranks, the fewer of them each rank adds up in a step"
)


def asks_global_types(result: RunResult, options: CheckOptions) -> bool:
    """Whether a clean ``result`` rests on local types alone, though more is known of the data."""
    data = tuple(one for one in result.coverage.own_data if not one.of_operator)  # of others the ranks are asked later
    coverage = replace(result.coverage, own_reductions=(), own_data=data)  # reductions are what it is asked for
    return (
        options.local
        and options.observe
        and options.launched is None
        and replace(result, coverage=coverage).exit_code is ExitCode.CLEAN
        and bool(coverage.own_data)
        and all(one.said for one in data)
    )


def with_global_types(program: Program, options: CheckOptions, result: RunResult, other: KeptProcess) -> RunResult:
    """``result``, and what a run with global types adds to it, or that there was none to its end."""
    globally = replace(options, local=False)
    if result.coverage.says_types or result.ranks:
        return _with_scale(result, _run_again(program, globally, result, other))
    ranks = of_each_axis(globally, result) if has_values(options) else ()
    several = _on_ranks(ranks, program, globally, result, other) if len(ranks) > 1 else None
    if several is not None and several.stopped is None:  # of a pipeline, some ranks alone may come to no end
        second: RunResult | None = several
        result = _with_ranks(result, several, ranks)
    else:
        second = _run_again(program, globally, result, other)
    if second is None:
        return replace(result, coverage=replace(result.coverage, refused_globally=(_NO_END.format("it broke"),)))
    fact = SAID
    told = tuple(one for one in second.errors if one.code not in OF_RANKS)
    if second.stopped is None and not told and _rests_on_numbers(second):
        third = _with_numbers(program, globally, result.coverage.own_data, other, cuts=_cuts_batches(second))
        if third is not None:
            second, fact = third
            told = second.errors
    of_scale = [replace(one, facts=(*one.facts, fact)) for one in told if one.code in OF_SCALE and not _own_means(one)]
    said = {one.location for one in result.findings if one.code == BRANCHES}
    root = absolute_root(None)
    errors = [
        one
        for one in told
        if one.code != READS or not (one.location in said or _of_constants(one, result.coverage, root))
    ]
    stopped = [] if second.stopped is None else [_NO_END.format(second.stopped.text)]
    of_errors = [_sentence(one, root) for one in errors]
    refused = [] if of_scale else [*of_errors, *_resting_on_numbers(second, root), *stopped]
    coverage = replace(
        result.coverage,
        refused_globally=tuple(dict.fromkeys(refused)),
        own_elements=second.coverage.own_elements,
        own_reductions=second.coverage.own_reductions,
    )
    known = {(one.what, one.location) for one in result.lost}
    lost = [one for one in second.lost if one.what.startswith(SCALE_OVER) and (one.what, one.location) not in known]
    return replace(result, findings=(*result.findings, *of_scale), lost=(*result.lost, *lost), coverage=coverage)


def _rests_on_numbers(result: RunResult) -> bool:
    """Is a gradient's scale lost, or is one added up of as many micro-batches as there are?"""
    return any(is_of_gradients(one.what) for one in result.lost) or _cuts_batches(result)


def _cuts_batches(result: RunResult) -> bool:
    return any(one.what == OF_CUTS for one in result.trusted)


def _with_scale(result: RunResult, second: RunResult | None) -> RunResult:
    """``result`` of a program that writes local types, or of several ranks, and its gradients on another scale, if a
    run with global types refuses nothing else: it may do on purpose what these do not follow.
    """
    if second is None or second.stopped is not None or any(one.code != OFF_SCALE for one in second.errors):
        return result
    found = [replace(one, facts=(*one.facts, SAID)) for one in second.errors]
    coverage = replace(result.coverage, own_reductions=second.coverage.own_reductions)
    return replace(result, findings=(*result.findings, *found), coverage=coverage)


def _run_again(program: Program, options: CheckOptions, result: RunResult, other: KeptProcess) -> RunResult | None:
    """Of one rank; of all that have run where the program does what takes them all, as a checkpoint does."""
    try:
        return further_run(other, check_program, program, options, "with global types")
    except OtherRanksNeeded:
        return _on_ranks(result.ranks, program, options, result, other)


def _on_ranks(
    ranks: Sequence[int], program: Program, options: CheckOptions, result: RunResult, other: KeptProcess
) -> RunResult | None:
    own = replace(options, world_size=size_with(ranks, options, result))
    choice = RankChoice(listed=tuple(ranks))
    return further_run(other, _result_of, program, own, f"with global types, on {ranks_text(ranks)}", choice)


def _result_of(program: Program, options: CheckOptions, choice: RankChoice) -> RunResult:
    return check_ranks(program, options, choice)[0]


def _with_ranks(result: RunResult, several: RunResult, ranks: Sequence[int]) -> RunResult:
    """``result``, and what no rank finds alone: where they part, and whether their data are the same."""
    fact = SAID_OF_RANKS.format(ranks_text(ranks), ",".join(map(str, ranks)))
    parted = [replace(one, facts=(*one.facts, fact)) for one in several.findings if one.code in OF_RANKS]
    compared = {(one.what, one.location): one for one in several.coverage.own_data if one.alike or one.apart}
    met = [(one, compared.get((one.what, one.location), one)) for one in result.coverage.own_data]
    data = [replace(one, said=one.said and not other.alike, alike=other.alike, apart=other.apart) for one, other in met]
    coverage = replace(result.coverage, own_data=tuple(data))
    return replace(result, findings=(*result.findings, *parted), coverage=coverage)


def _of_constants(finding: Finding, coverage: Coverage, root: str) -> bool:
    """Is what is read the least or the greatest of rows that are the same on every rank, and so the same as of all?

    Rows of constants are cut where there is one for each sample (``positions.expand(len(x), -1)``).
    """
    extreme = any(f"{finding.axis}: P({which})" in one.type for one in finding.operands for which in ("min", "max"))
    return extreme and finding.location is not None and location_text(finding.location, root) in coverage.constants_read


def _resting_on_numbers(second: RunResult, root: str) -> list[str]:
    """What gradients may rest on that global types do not follow: numbers that ranks have read of their own tensors, or
    that they have joined.
    """
    untold = second.coverage.unjudged_gradients or second.coverage.unjudged_losses
    if not untold and not any(is_of_gradients(one.what) for one in second.lost):
        return []
    of = "what gradients are" if untold else "the scale of gradients"
    made = [(one.what, one.location) for one in second.lost if one.what in _FOLLOWED and one.location is not None]
    return [f"{of} is lost, and {_FOLLOWED[what]} ({location_text(at, root)})" for what, at in made[:1]]


_FOLLOWED = {
    OF_NUMBERS: "a tensor is made of numbers that each rank has read",
    OF_MESSAGES: "numbers of several scales are joined",
    OF_ADDENDS: "addends of a sum are compared or handed on",
}


def _with_numbers(
    program: Program, options: CheckOptions, data: Sequence[OwnData], other: KeptProcess, *, cuts: bool
) -> tuple[RunResult, str] | None:
    """A run that knows on which scale the program's numbers are, where gradients have lost theirs or it ``cuts``
    micro-batches, and what is said of it; None if none can.
    """
    own = with_known_numbers(program, options, data, other, cuts=cuts)
    if own is None:
        return None
    third = further_run(other, check_program, program, own, "with global types, and the scale of the numbers it writes")
    if third is None or third.stopped is not None:
        return None
    where = third.mesh or counted(own.world_size, "rank")
    said = SAID_OF_MICRO_BATCHES if own.told is not None and own.told.rows else SAID_OF_NUMBERS
    return third, said + ("" if own.world_size == options.world_size else f"; what is said is so on {where}")


def _own_means(finding: Finding) -> list[str]:
    """The means over a rank's own samples that meet what is no such mean, by name: ``advantages - advantages.mean()``.

    Local types take them for each rank's own. A sum beside a mean is on another scale whatever is meant.
    """
    means = [one.name for one in finding.operands if f"{finding.axis}: P(avg)" in one.type]
    sums = [one for one in finding.operands if f"{finding.axis}: P" in one.type and one.name not in means]
    return means if finding.code in OF_OWN_MEANS and not sums else []


def _sentence(finding: Finding, root: str) -> str:
    location = finding.location
    where = "" if location is None else f", {location_text(location, root)}"
    return f"{finding.message} ({finding.code}{where}){_own_part(finding)}"


def _own_part(finding: Finding) -> str:
    """What it comes to where a rank uses its part of a sum that one device has as a whole, as a count of its tokens.

    ``loss.sum() / mask.sum().clamp(min=1)`` is a mean over a rank's own tokens. The mean of such means, which a wrapper
    takes, is that over all tokens where the counts are equal.
    """
    for name in _own_means(finding)[:1]:
        return f": each rank goes by its own {name}, and one device by that of all samples"
    pending = [one for one in finding.operands if f"{finding.axis}: P" in one.type]
    if finding.code not in OF_PENDING_SUMS or not pending:
        return ""
    name, type = pending[0].name, pending[0].type
    if not type.startswith(COUNTS):
        return f": each rank goes by its own {name}, and one device by their sum"
    return f": each rank goes by its own {name}, and one device by all, which is the same only where ranks count alike"
