"""How is a program verified? It runs on every rank of the mesh and on one rank alone, in real processes, under the
checker; then the two are compared.
"""

from __future__ import annotations

import contextlib
import io
import math
import os
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

from shardwise.checker.scopes.activation import checking
from shardwise.diagnostics.errors import SpmdArgumentError, SpmdValueError
from shardwise.diagnostics.result import Collector, RunResult, group
from shardwise.diagnostics.source import add_internal_prefix
from shardwise.host.program import NoProgram, output_to_stderr
from shardwise.interop.running.recording import Recorder
from shardwise.interop.running.session import Partials
from shardwise.interop.tensors.local_form import local_form
from shardwise.interop.torch_compat import tree_leaves
from shardwise.mesh.entry import current_entry, set_current_entry
from shardwise.mesh.program import MeshFollower
from shardwise.types.aliases import Axis
from shardwise.worlds.failures import RankFailure, RankTimeout
from shardwise.worlds.flight_recorder import communicated_dtypes
from shardwise.worlds.processes import run_processes
from shardwise.worlds.real_rank import real_world

from .annotation_sites import SiteRecorder
from .compare import compare
from .crash import crash_among, crash_caught, lost, unreadable
from .failure import Failure
from .numbers import ValueDisagreement
from .record import RankRun
from .subject import Function, Subject
from .text import Verdict
from .warming import warm_up
from .watch import UNSEEDED, watching

TIMEOUT_S = 300.0


@dataclass(frozen=True)
class VerifyOptions:
    """How a program is verified; the command line's options under the same names.

    ``double``     floating-point factories make float64 unless told otherwise.
    ``rtol``       how far values may be apart, relative to the largest; None takes it from their dtypes.
    ``every``      compare the result of every operation that has a type.
    ``narrow``     where something disagrees, run once more with every result and all types, to find where it begins.
    ``layouts``    record buffers too, targets of losses, and gradients as backward computes them.
    ``project``    the folder of the program; from where its source reaches tensors is recorded too.
    ``show``       the program's own output on rank 0 goes to stderr; all other output is dropped.
    """

    strict: bool = True
    local: bool = True
    partials: Partials = "infer"
    double: bool = False
    rtol: float | None = None
    timeout_s: float = TIMEOUT_S
    every: bool = False
    narrow: bool = True
    show: bool = False
    layouts: bool = False
    project: Path | None = None


def verify(
    program: Callable[..., object],
    mesh: Mapping[str, int],
    *,
    strict: bool = True,
    local: bool = True,
    partials: Partials = "infer",
    double: bool = False,
    rtol: float | None = None,
    timeout_s: float = TIMEOUT_S,
    every: bool = False,
    narrow: bool = True,
) -> Verdict:
    """Run ``program`` on every rank of ``mesh`` and on one rank, and compare what it computes.

    ``program``    a function that takes nothing, or the device mesh. Its axes are current while it runs. Tensors that
                   it returns are compared, like those it declares, its losses and its gradients.
    ``mesh``       axes with their sizes, outermost first.
    ``strict``, ``local``, ``partials``  as for ``shardwise check``.
    ``double``     floating-point factories make float64 unless told otherwise.
    ``rtol``       how far values may be apart, relative to the largest; left out, it follows from their dtypes.
    ``timeout_s``  for each of the runs.
    ``every``      compare the result of every operation that has a type, not only what is declared.
    ``narrow``     where something disagrees, run both once more to find the first operation whose result does.

    A run that fails or hangs is told in ``Verdict.failure``. Errors: SW905 for what is no function, SW903 for what is
    no mesh.

    Example:
        >>> def program():
        ...     return assert_type(torch.ones(4), {"tp": R}) * 2
        >>> print(verify(program, {"tp": 2}).exit_code)
        0
    """
    if not callable(program):
        raise SpmdArgumentError(f"verify takes a function, got one of type {type(program).__name__}", code="SW905")
    options = VerifyOptions(strict, local, partials, double, rtol, timeout_s, every, narrow)
    return verify_subject(Function(program), dict(mesh), options)


def verify_subject(
    subject: Subject,
    mesh: Mapping[str, int],
    options: VerifyOptions,
    *,
    stage: Callable[[str], None] = lambda text: None,
) -> Verdict:
    """The verdict on ``subject``; ``stage`` is told what is being done."""
    for name, size in mesh.items():
        if not isinstance(size, int) or isinstance(size, bool) or size < 1:
            raise SpmdValueError(f"axis {name} has size {size!r}, which is not a number of ranks", code="SW903")
    if not mesh:
        raise SpmdValueError("a mesh needs at least one axis, got none", code="SW903", help=('mesh={"dp": 2}',))
    add_internal_prefix(os.path.dirname(os.path.abspath(torch.__file__)) + os.sep)
    started_s = time.perf_counter()
    shown = _shown(mesh)
    runs, failure = run_both(subject, mesh, options, stage)
    if failure is not None:
        types = _together([run.types for run in runs])
        return Verdict(str(subject), shown, types, failure=failure, duration_s=time.perf_counter() - started_s)
    stage("comparing")
    *ranks, alone = runs
    types = _together([run.types for run in ranks])
    numbers = compare(ranks, alone, rtol=options.rtol, mesh=mesh)
    if numbers.disagreements and options.narrow:
        origin, module = _closer(subject, mesh, options, stage)
        numbers = replace(numbers, origin=origin, module=module)
    return Verdict(str(subject), shown, types, numbers, duration_s=time.perf_counter() - started_s)


def run_ranks(subject: Subject, sizes: Mapping[str, int], options: VerifyOptions) -> list[RankRun]:
    """What every rank of a mesh of these sizes records, in rank order; also how the program crashed, if it did: then
    ranks that wait for those that crashed are left out.

    Errors: NoProgram or SyntaxError if it cannot be read, RankFailure for a process that dies, RankTimeout for a hang.
    """
    warm_up()
    run = subject.prepare(sizes)
    world_size = math.prod(sizes.values())
    try:
        return run_processes(
            _run_rank,
            world_size,
            run,
            sizes,
            options,
            str(subject),
            _free_port(),
            subject.joined,
            timeout_s=options.timeout_s,
            ended_early=lambda came: came.crash is not None,
        )
    except RankFailure as error:
        if isinstance(error.__cause__, NoProgram):
            raise error.__cause__ from None
        raise


def run_both(
    subject: Subject, mesh: Mapping[str, int], options: VerifyOptions, stage: Callable[[str], None]
) -> tuple[list[RankRun], Failure | None]:
    """What the ranks of the mesh recorded, and behind them the one rank; or what there is of it, and why not.

    Errors: SW903 for what is no mesh.
    """
    runs: list[RankRun] = []
    for where, sizes in (("on one rank", dict.fromkeys(mesh, 1)), ("on the mesh", dict(mesh))):
        stage(f"running {where}")
        try:
            ranks = run_ranks(subject, sizes, options)
        except SyntaxError as error:
            return [], unreadable(error)
        except (RankFailure, RankTimeout) as error:
            return [], lost(error, where)
        failure = crash_among(ranks, where, math.prod(sizes.values()))
        if failure is not None:
            return (ranks if runs else []), failure
        runs = [*ranks, *runs]
    return runs, None


def _closer(
    subject: Subject, mesh: Mapping[str, int], options: VerifyOptions, stage: Callable[[str], None]
) -> tuple[ValueDisagreement | None, ValueDisagreement | None]:
    """The first result that disagrees when all are looked at, with all that global types know of them; if it comes
    before everything else. And the first module whose output no layout explains.
    """
    runs, failure = run_both(subject, mesh, replace(options, every=True, local=False, show=False), stage)
    if failure is not None:
        return None, None
    *ranks, alone = runs
    closer = compare(ranks, alone, rtol=options.rtol, mesh=mesh)
    first = next(iter(closer.disagreements), None)
    return (first if first is not None and first.key.kind == "result" else None), closer.module


def _run_rank(
    run: Callable[[object], object],
    sizes: Mapping[str, int],
    options: VerifyOptions,
    name: str,
    port: int,
    joined: bool,
) -> RankRun:
    """What one rank records; runs in its own process."""
    collector = Collector(mesh=_shown(sizes), script=name)
    recorder = Recorder()
    came = RankRun(entries=recorder.entries, steps=recorder.steps, rank=dist.get_rank())
    torch.manual_seed(UNSEEDED)  # as in a fresh process, whatever the caller has drawn
    if options.double:
        torch.set_default_dtype(torch.float64)
    with contextlib.ExitStack() as stack:
        printed = stack.enter_context(_output(options.show and dist.get_rank() == 0 and dist.get_world_size() > 1))
        mesh = stack.enter_context(_current(sizes, port, joined=joined))
        given = current_entry()
        assert given is not None, "a mesh of the command line is current until the program makes one"
        own_axes: dict[Axis, str] = {axis: repr(axis) for axis in given.ordered_axes}
        sites = SiteRecorder(options.project, given) if options.project is not None else None
        stack.enter_context(
            checking(strict=options.strict, local=options.local, partials=options.partials, collect=collector)
        )
        with (
            crash_caught(came, printed),
            watching(
                recorder,
                every=options.every,
                alone=dist.get_world_size() == 1,
                layouts=options.layouts,
                sites=sites,
            ),
        ):
            outputs = run(mesh)
            leaves = [leaf for leaf in tree_leaves(outputs) if isinstance(leaf, torch.Tensor)]
            for at, leaf in enumerate(leaves):
                local, type = local_form(leaf)
                recorder.add("output", f" {at}" if len(leaves) > 1 else "", local, type, None)
        came.axes = {**own_axes, **recorder.axes}
    came.dtypes, came.types = recorder.dtypes | communicated_dtypes(), collector.result()
    if sites is not None:
        came.sites = sites.sites
    return came


@contextlib.contextmanager
def _current(sizes: Mapping[str, int], port: int, *, joined: bool) -> Iterator[Any]:
    """The real world; a mesh of these sizes is current in it until the program makes one of its own."""
    follower = MeshFollower()
    with real_world(command="verify", port=port, on_mesh=follower.made, joined=joined):
        mesh = init_device_mesh("cpu", tuple(sizes.values()), mesh_dim_names=tuple(sizes))
        follower.start(mesh)
        try:
            yield mesh
        finally:
            set_current_entry(None)


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


def _shown(mesh: Mapping[str, int]) -> str:
    return ", ".join(f"{name}={size}" for name, size in mesh.items())


def _together(results: list[RunResult]) -> RunResult:
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


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
