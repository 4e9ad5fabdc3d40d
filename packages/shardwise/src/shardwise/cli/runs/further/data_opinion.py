"""Has each rank data of its own? Where a verdict rests on that and nothing in the program says so, the ranks are asked.

A wrapper that averages gradients is right whatever the ranks train on, and wasted where all of them train on the same.
A ``DistributedSampler`` says that they do not. Where the program takes its part in another way (``data[rank::n]``, a
seed, a file, a stream), one rank alone cannot tell, so it runs once more, on this rank and on one more of every group
that averages, and what these hand to their models is compared.
"""

from __future__ import annotations

from dataclasses import replace

from shardwise.diagnostics.coverage import OwnData
from shardwise.diagnostics.printing.ranks import ranks_text
from shardwise.diagnostics.result import ExitCode, RunResult
from shardwise.host.kept_process import KeptProcess
from shardwise.host.program import Program

from ...options.ranks_option import RankChoice
from ..ranks import check_ranks
from ..run import CheckOptions
from .compared_ranks import has_values, of_each_group, size_with
from .further_run import further_run


def asks_other_ranks(result: RunResult, options: CheckOptions) -> bool:
    """Whether ``result`` of one rank is inconclusive for no other reason than that data are assumed to be its own."""
    coverage = result.coverage
    return (
        options.launched is None
        and has_values(options)
        and result.exit_code is ExitCode.INCONCLUSIVE
        and coverage.is_data_assumed
        and replace(result, coverage=replace(coverage, own_data=())).exit_code is ExitCode.CLEAN
    )


def with_other_ranks(program: Program, options: CheckOptions, result: RunResult, other: KeptProcess) -> RunResult:
    """``result``, and what is known of the data when more ranks have run; as it is if they cannot."""
    assumed = [one for one in result.coverage.own_data if one.is_assumed]
    ranks = of_each_group(options.rank, assumed)
    own = replace(options, world_size=size_with(ranks, options, result))
    why = f"with {ranks_text(ranks)}, to compare their data"
    found = further_run(other, _data_of, program, own, why, RankChoice(listed=ranks))
    if found is None:
        return result
    left = {(one.what, one.location): one for one in found}
    data = tuple(
        left.get((one.what, one.location), replace(one, apart=ranks)) if one in assumed else one
        for one in result.coverage.own_data
    )
    return replace(result, coverage=replace(result.coverage, own_data=data))


def _data_of(program: Program, options: CheckOptions, choice: RankChoice) -> tuple[OwnData, ...] | None:
    """What is left to say of the data of these ranks; None if one of them has not come to its end."""
    result, _ = check_ranks(program, options, choice)
    return None if result.stopped is not None else result.coverage.own_data
