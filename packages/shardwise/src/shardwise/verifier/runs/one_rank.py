"""What happens on one rank of a run that is verified? The program runs under the checker, and a recorder listens."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

import torch

from shardwise.checker.observation.run_record import watched
from shardwise.checker.scopes.activation import checking
from shardwise.diagnostics.result import Collector, RunResult, group
from shardwise.host.program import output_to_stderr
from shardwise.interop.running.precision import rounds_products
from shardwise.interop.running.recording import Recorder
from shardwise.interop.tensors.local_form import local_form
from shardwise.interop.torch_compat import tree_leaves
from shardwise.mesh.entry import current_entry
from shardwise.types.aliases import Axis
from shardwise.worlds.flight_recorder import communicated_dtypes, narrow_reductions

from ..records.options import VerifyOptions
from ..records.record import RankRun
from .crash import crash_caught
from .listeners import Listeners
from .random_draws import UNSEEDED


def record_run(
    run: Callable[[Any], Any],
    world: AbstractContextManager[object],
    options: VerifyOptions,
    recorder: Recorder,
    *,
    place: tuple[int, int],
    name: str,
    mesh: str,
) -> RankRun:
    """What one rank records, in the world in which it runs.

    ``run``    the program, given the mesh that the world gives, or None.
    ``place``  the rank, and how many there are.
    """
    rank, size = place
    collector = Collector(mesh=mesh, script=name)
    came = RankRun(entries=recorder.entries, steps=recorder.steps, rank=rank)
    torch.manual_seed(UNSEEDED)  # as in a fresh process, whatever the caller has drawn
    if options.double:
        torch.set_default_dtype(torch.float64)
    own_axes: dict[Axis, str] = {}
    with contextlib.ExitStack() as stack:
        printed = stack.enter_context(_output(options.show and rank == 0 and size > 1))
        made = stack.enter_context(world)
        entry = current_entry()
        if entry is not None:
            own_axes = {axis: repr(axis) for axis in entry.ordered_axes}
        session = stack.enter_context(
            checking(strict=options.strict, local=options.local, partials=options.partials, collect=collector)
        )
        session.links = options.links
        session.derivatives = size == 1 and not options.every and not options.layouts
        listeners = Listeners(options, rank, size, entry)
        stack.enter_context(listeners.loading.watching())
        watch = stack.enter_context(watched()) if options.record and rank == 0 and size > 1 else None
        with crash_caught(came, printed), listeners.listening(recorder):
            _record_outputs(recorder, run(made))
        came.axes = {**own_axes, **recorder.axes}
        if watch is not None:
            collector.record = watch.record()
    came.types = collector.result()
    listeners.tell(came)
    _tell_recorded(recorder, came)
    return came


def _record_outputs(recorder: Recorder, outputs: object) -> None:
    leaves = [leaf for leaf in tree_leaves(outputs) if isinstance(leaf, torch.Tensor)]
    for at, leaf in enumerate(leaves):
        local, type = local_form(leaf)
        recorder.add("output", f" {at}" if len(leaves) > 1 else "", local, type, None)


def _tell_recorded(recorder: Recorder, came: RankRun) -> None:
    """What the recorder has learnt of the run as a whole."""
    came.dtypes = recorder.dtypes | communicated_dtypes()
    came.untrained, came.scale_free = recorder.untrained, recorder.scale_free
    came.talking_steps, came.settings = recorder.talking_steps, recorder.settings
    came.tf32 = rounds_products(convolutions=recorder.convolves)
    came.divisors, came.data_parallel = recorder.divisors, recorder.data_parallel
    came.narrow_sums = list(recorder.narrow_sums)
    if narrow := narrow_reductions():
        rounded = "the ranks' terms and their sums are rounded to it, the more the more ranks there are"
        came.narrow_sums.append(f"{', '.join(narrow)}: {rounded}")


@contextlib.contextmanager
def _output(shown: bool) -> Iterator[io.StringIO]:
    """What the program prints goes to stderr, or into the buffer that is given: the last words of a crash."""
    printed = io.StringIO()
    if shown:
        with output_to_stderr():
            yield printed
        return
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
        yield printed


def shown_mesh(mesh: Mapping[str, int]) -> str:
    """The mesh as reports show it."""
    return ", ".join(f"{name}={size}" for name, size in mesh.items())


def with_derivatives(ranks: RunResult, alone: RunResult) -> RunResult:
    """What was said on the ranks, and of the run on one rank what it says of backwards that are no derivatives."""
    wrong = [finding for finding in alone.findings if finding.code == "SW310"]
    return replace(ranks, findings=group([*ranks.findings, *wrong])) if wrong else ranks


def merged_types(results: list[RunResult]) -> RunResult:
    """What the checker said on all ranks; the same mistake on several ranks is one finding."""
    if not results:
        return RunResult()
    first, *others = results
    findings = list(first.findings)
    known = {(finding.code, finding.location, finding.op, finding.axis) for finding in findings}
    for result in others:
        findings += [one for one in result.findings if (one.code, one.location, one.op, one.axis) not in known]
        known |= {(finding.code, finding.location, finding.op, finding.axis) for finding in result.findings}
    return replace(first, findings=group(findings))
