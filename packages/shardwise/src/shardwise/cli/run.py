"""What happens between reading a program and having its result? It runs in a fake world, under the checker, once.

However the program ends (normally, with an exception, with Ctrl-C), what was found until then is the result.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from types import FrameType, TracebackType
from typing import Any

import click
import torch
from torch.distributed.device_mesh import init_device_mesh

from shardwise.checker.activation import checking
from shardwise.checker.session import Partials
from shardwise.diagnostics.boundary import attach
from shardwise.diagnostics.finding import Place
from shardwise.diagnostics.limits import counted
from shardwise.diagnostics.result import Collector, RunResult, StopReason
from shardwise.diagnostics.source import Site, add_internal_prefix, is_internal
from shardwise.interop.tracing import trace
from shardwise.mesh.current import current_entry, mesh_of
from shardwise.mesh.entry import set_current_entry
from shardwise.simulator.fake_world import fake_world
from shardwise.types.errors import SpmdTypeError

from .mesh_option import MeshShape
from .program import Program
from .progress import progress


@dataclass(frozen=True)
class Options:
    """How a program is to be checked; the command line's options under the same names."""

    world_size: int
    rank: int = 0
    mesh: MeshShape | None = None
    strict: bool = True
    local: bool = True
    partials: Partials = "infer"
    device: str = "cpu"
    fake: bool = False
    trace: bool = False
    whole_traceback: bool = False
    plain_progress: bool = True


def check_program(program: Program, options: Options) -> RunResult:
    """The result of one run. Errors: a usage error if the program cannot be read, SW903 for an impossible world."""
    add_internal_prefix(os.path.dirname(os.path.abspath(torch.__file__)) + os.sep)
    collector = Collector(mesh=_shown_mesh(options), script=str(program), rank=options.rank)
    interrupted = threading.Event()
    with _ending(collector, interrupted, options.whole_traceback):
        loaded = program.load()
        with (
            _ctrl_c(interrupted),
            _world(options),
            trace(options.trace),
            checking(
                strict=options.strict, local=options.local, partials=options.partials, collect=collector
            ) as session,
            progress(lambda: _status(session.checked, collector), plain=options.plain_progress),
        ):
            program.run(loaded)
    return collector.result()


def _shown_mesh(options: Options) -> str:
    return str(options.mesh).replace(",", ", ") if options.mesh is not None else ""


def _status(checked_ops: int, collector: Collector) -> str:
    return f"{counted(checked_ops, 'operation')} checked, {counted(len(collector.result().findings), 'finding')}"


@contextlib.contextmanager
def _world(options: Options) -> Iterator[None]:
    """The fake world; the mesh of ``--mesh`` is current in it until the program makes one of its own."""
    mesh = options.mesh
    entry: Any = None

    def give_way() -> None:
        if entry is not None and current_entry() is entry:
            set_current_entry(None)

    with fake_world(
        options.rank,
        options.world_size,
        device=options.device,
        fake=options.fake,
        joined=mesh is not None,
        on_mesh=give_way,
    ):
        if mesh is None:
            yield
            return
        entry = mesh_of(init_device_mesh("cpu", mesh.sizes, mesh_dim_names=mesh.names))
        set_current_entry(entry)
        try:
            yield
        finally:
            set_current_entry(None)


@contextlib.contextmanager
def _ctrl_c(interrupted: threading.Event) -> Iterator[None]:
    """Remembers a Ctrl-C, also one that the program itself swallows."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def handler(number: int, frame: FrameType | None) -> None:
        interrupted.set()
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextlib.contextmanager
def _ending(collector: Collector, interrupted: threading.Event, whole: bool) -> Iterator[None]:
    """Turns the way in which the program ended into part of the result."""
    try:
        yield
    except KeyboardInterrupt as error:
        collector.stop(StopReason.INTERRUPTED, place=_place(error))
    except SystemExit as error:
        if error.code not in (None, 0):
            collector.stop(StopReason.SCRIPT_ERROR, f"SystemExit({error.code!r})", _place(error))
    except SyntaxError as error:
        collector.stop(StopReason.SCRIPT_ERROR, _said(error), _syntax_place(error) or _place(error))
    except SpmdTypeError as error:
        collector.add(attach(error, place=_place(error)))
        collector.stop(StopReason.SCRIPT_ERROR, type(error).__name__, _place(error))
    except click.ClickException:
        raise
    except Exception as error:
        print(_traceback(error, whole), file=sys.stderr, end="", flush=True)
        collector.stop(StopReason.SCRIPT_ERROR, _said(error), _place(error))
    if interrupted.is_set():
        collector.stop(StopReason.INTERRUPTED)


def _said(error: BaseException) -> str:
    try:
        first = (str(error).splitlines() or [""])[0]
    except Exception:
        first = "an exception that cannot be printed"
    return f"{type(error).__name__}: {first}" if first else type(error).__name__


def _steps(step: TracebackType | None) -> Iterator[TracebackType]:
    while step is not None:
        yield step
        step = step.tb_next


def _place(error: BaseException) -> Place | None:
    """Where in the program's own code the error was raised, or passed by last."""
    own = [step for step in _steps(error.__traceback__) if not is_internal(step.tb_frame.f_code)]
    return Site(own[-1].tb_frame.f_code, own[-1].tb_lasti).place() if own else None


def _syntax_place(error: SyntaxError) -> Place | None:
    if error.filename is None or error.lineno is None:
        return None
    column = error.offset - 1 if error.offset else None
    end = error.end_offset - 1 if error.end_offset and error.end_lineno == error.lineno else None
    return Place(error.filename, error.lineno, error.end_lineno, column, max(end or 0, (column or 0) + 1))


def _traceback(error: BaseException, whole: bool) -> str:
    """The traceback with the frames of the program; its causes are told with theirs."""
    told = traceback.TracebackException.from_exception(error, compact=True)
    if whole:
        return "".join(told.format())
    internal = {step.tb_frame.f_code.co_filename for step in _all_steps(error) if is_internal(step.tb_frame.f_code)}
    hidden = 0
    link: traceback.TracebackException | None = told
    while link is not None:
        kept = [summary for summary in link.stack if summary.filename not in internal]
        hidden += len(link.stack) - len(kept)
        link.stack = traceback.StackSummary.from_list(kept)
        link = link.__cause__ or link.__context__
    note = f"({hidden} frames of torch and shardwise are left out; --all shows them)\n" if hidden else ""
    return "".join(told.format()) + note


def _all_steps(error: BaseException) -> Iterator[TracebackType]:
    link: BaseException | None = error
    while link is not None:
        yield from _steps(link.__traceback__)
        link = link.__cause__ or link.__context__
