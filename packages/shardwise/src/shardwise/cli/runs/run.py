"""What happens between reading a program and having its result? It runs in a fake world, under the checker, once.

However the program ends (normally, with an exception, with Ctrl-C), what was found until then is the result.
"""

from __future__ import annotations

import contextlib
import functools
import math
import os
import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from types import FrameType
from typing import Protocol

import torch
from torch.distributed.device_mesh import init_device_mesh

from shardwise.checker.observation.coverage import counting
from shardwise.checker.parts.micro_batches import told_rows
from shardwise.checker.scopes.activation import checking
from shardwise.diagnostics.coverage import Coverage
from shardwise.diagnostics.finding import Finding
from shardwise.diagnostics.printing.limits import counted
from shardwise.diagnostics.result import Collector, RunResult
from shardwise.diagnostics.source import add_internal_prefix
from shardwise.host.launcher import LaunchedRank
from shardwise.host.program import Program
from shardwise.host.reached_comments import noting_comments
from shardwise.interop.calls.tracing import trace
from shardwise.interop.running.session import Partials
from shardwise.mesh.axis import MeshAxis
from shardwise.mesh.entry import CurrentMesh, set_current_entry
from shardwise.mesh.made_meshes import made_meshes
from shardwise.mesh.program import MeshFollower
from shardwise.mesh.shape import MeshShape
from shardwise.op_rules.propagation.operand import told_numbers
from shardwise.planner.links import NamedLinks
from shardwise.types.tensor_type import Exponent
from shardwise.worlds.fake import fake_world
from shardwise.worlds.launched.rank import launched_world

from . import guard
from .ending import ending
from .progress import progress


@dataclass(frozen=True)
class ToldNumbers:
    """What other runs have shown of a program.

    ``exponents``  along ``axis``, those of the numbers that it writes.
    ``rows``       of its micro-batches, on any number of ranks; empty if it has fewer on more.
    """

    axis: MeshAxis
    exponents: Mapping[float, Exponent]
    rows: frozenset[int]


@dataclass(frozen=True)
class CheckOptions:
    """How a program is to be checked; the command line's options under the same names.

    ``guessed``  nobody has said how many ranks there are: the program may.
    ``told``     what other runs of it have shown.
    """

    world_size: int
    guessed: bool = False
    rank: int = 0
    mesh: MeshShape | None = None
    strict: bool = True
    observe: bool = False
    local: bool = True
    partials: Partials = "infer"
    device: str = "cpu"
    fake: bool = False
    trace: bool = False
    whole_traceback: bool = False
    plain_progress: bool = True
    launched: LaunchedRank | None = None
    record: bool = False
    links: NamedLinks = field(default_factory=NamedLinks)
    told: ToldNumbers | None = None


class RankRecorder(Protocol):
    """What is told of everything that a rank asks of the others."""

    def recording(self) -> AbstractContextManager[None]:
        """Inside the block it is told."""

    def found(self, finding: Finding) -> None:
        """The check of the rank has found something."""

    def reduced_by_wrapper(self, buffer: torch.Tensor, process_group: object) -> None:
        """A wrapper's reducer would sum ``buffer`` over a group."""


def check_program(
    program: Program,
    options: CheckOptions,
    recorder: RankRecorder | None = None,
    status: Callable[[], str] | None = None,
) -> RunResult:
    """The result of one run. ``recorder`` records the program in its world; ``status`` says how far the run is, where
    that is not told by what has been checked.

    Errors: NoProgram if it cannot be read, OtherRanksNeeded if one rank is not enough, SW903 for an impossible world.
    """
    add_internal_prefix(os.path.dirname(os.path.abspath(torch.__file__)) + os.sep)
    collector = Collector(
        mesh=_shown_mesh(options),
        script=str(program),
        rank=options.rank,
        told=lambda finding: _tell(finding, recorder),
        notes_calls=options.world_size > 1,
    )
    interrupted = threading.Event()
    with noting_comments() as comments, ending(collector, interrupted, options.whole_traceback):
        loaded = program.load()
        with (
            signals(interrupted),
            world_of(options, recorder),
            made_meshes() as made,  # the mesh of --mesh is none that the program has made
            trace(options.trace),
            checking(
                strict=options.strict,
                local=options.local,
                partials=options.partials,
                collect=collector,
                observe=options.observe,
            ) as session,
            counting(functools.partial(_tell_coverage, collector, options), session, compares=recorder is not None),
            progress(status or (lambda: _status(session.checked, collector)), plain=options.plain_progress),
            contextlib.nullcontext() if recorder is None else recorder.recording(),
            _recorded(collector) if options.record else contextlib.nullcontext(),
            contextlib.nullcontext() if options.told is None else _told(options.told),
        ):
            session.links = options.links
            guard.counting(lambda: session.checked)
            try:
                program.run(loaded)
            finally:
                collector.own_mesh = _own_mesh(made)
    collector.ignores = comments.result()
    return collector.result()


@contextlib.contextmanager
def _recorded(collector: Collector) -> Iterator[None]:
    """The result has a record of the block, however it ends."""
    from shardwise.checker.observation.run_record import watched

    with watched() as watch:
        try:
            yield
        finally:
            collector.record = watch.record()


def _tell(finding: Finding, recorder: RankRecorder | None) -> None:
    guard.tell(finding)
    if recorder is not None:
        recorder.found(finding)


def _tell_coverage(collector: Collector, options: CheckOptions, coverage: Coverage) -> None:
    if options.world_size > 1:
        collector.coverage = coverage


def _shown_mesh(options: CheckOptions) -> str:
    return str(options.mesh).replace(",", ", ") if options.mesh is not None else ""


@contextlib.contextmanager
def _told(told: ToldNumbers) -> Iterator[None]:
    with told_numbers(told.axis, told.exponents), told_rows(told.axis, told.rows):
        yield


def _own_mesh(made: Sequence[CurrentMesh]) -> str:
    """The largest of the meshes that the program has made, the first of several; empty if it has made none."""
    sizes = [{name: axis.size() for name, axis in mesh.all_names.items()} for mesh in made]
    largest = max(sizes, key=lambda one: math.prod(one.values()), default={})
    return ", ".join(f"{name}={size}" for name, size in largest.items())


def _status(checked_ops: int, collector: Collector) -> str:
    return f"{counted(checked_ops, 'operation')} checked, {counted(len(collector.result().findings), 'finding')}"


@contextlib.contextmanager
def world_of(options: CheckOptions, recorder: RankRecorder | None = None) -> Iterator[None]:
    """The fake world; in it the mesh of ``--mesh`` is current until the program makes one of its own."""
    mesh = options.mesh
    if options.launched is not None:
        with launched_world(options.launched, None if mesh is None else dict(mesh.axes), lambda made: None):
            yield
        return
    follower = MeshFollower()
    with fake_world(
        options.rank,
        options.world_size,
        device=options.device,
        fake=options.fake,
        joined=mesh is not None,
        on_mesh=follower.made,
        alone=recorder is None,
        guessed=options.guessed and recorder is None,
        on_reduction=None if recorder is None else recorder.reduced_by_wrapper,
    ):
        if mesh is not None:
            follower.start(init_device_mesh("cpu", mesh.sizes, mesh_dim_names=mesh.names))
        try:
            yield
        finally:
            set_current_entry(None)


@contextlib.contextmanager
def signals(interrupted: threading.Event) -> Iterator[None]:
    """Remembers a Ctrl-C or a request to terminate (the clock of a CI job), also one that the program swallows."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def handler(number: int, frame: FrameType | None) -> None:
        interrupted.set()
        raise KeyboardInterrupt

    hangs_up = [] if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN else [signal.SIGHUP]  # nohup
    before = {number: signal.signal(number, handler) for number in (signal.SIGINT, signal.SIGTERM, *hangs_up)}
    try:
        yield
    finally:
        for number, former in before.items():
            signal.signal(number, former)
