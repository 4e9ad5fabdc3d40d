"""How did the program end, and where? An exception becomes a finding or a reason, with the program's own frames."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import traceback
from collections.abc import Iterator
from types import TracebackType
from typing import Any

import click

from shardwise.diagnostics.boundary import attach
from shardwise.diagnostics.finding import Place
from shardwise.diagnostics.printable import safe_repr
from shardwise.diagnostics.result import Collector, StopReason
from shardwise.diagnostics.source import Site, is_internal
from shardwise.simulator.calls import CutOff
from shardwise.simulator.program import NoProgram, StartsProcesses
from shardwise.types.errors import SpmdTypeError

PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
CALLS_FOR_THE_PROGRAM = os.path.join("simulator", "accelerator.py")


@contextlib.contextmanager
def ending(collector: Collector, interrupted: threading.Event, whole: bool) -> Iterator[None]:
    """Turn the way in which the program ends inside the block into part of the result.

    ``whole`` asks for tracebacks with every frame.
    """
    try:
        yield
    except KeyboardInterrupt as error:
        collector.stop(StopReason.INTERRUPTED, place=_place(error))
    except SystemExit as error:
        if not _is_success(error.code):
            collector.stop(StopReason.SCRIPT_ERROR, f"SystemExit({safe_repr(error.code)})", _place(error))
    except SyntaxError as error:
        collector.stop(StopReason.SCRIPT_ERROR, _said(error), _syntax_place(error) or _place(error))
    except SpmdTypeError as error:
        collector.add(attach(error, place=_place(error)))
        collector.stop(StopReason.SCRIPT_ERROR, type(error).__name__, _place(error))
    except CutOff:
        pass  # what keeps this rank waiting is a finding about all of them
    except (click.ClickException, NoProgram):
        raise
    except BaseException as error:
        ours = _is_ours(error)
        print(_traceback(error, whole or ours), file=sys.stderr, end="", flush=True)
        said = f"{_said(error)} (a failure of shardwise itself)" if ours else _said(error)
        collector.stop(StopReason.SCRIPT_ERROR, said, _place(error))
    if interrupted.is_set():
        collector.stop(StopReason.INTERRUPTED)


def _said(error: BaseException) -> str:
    try:
        first = (str(error).splitlines() or [""])[0]
    except Exception:
        first = "an exception that cannot be printed"
    return f"{type(error).__name__}: {first}" if first else type(error).__name__


def _is_success(code: Any) -> bool:
    return code is None or (isinstance(code, int) and code == 0)


def _is_ours(error: BaseException) -> bool:
    """Was this raised by a mistake in shardwise, and not by the program or by torch?

    Torch's own functions have no frame, so the mode that calls them for the program does not count; nor does what
    refuses on purpose, nor a TypeError, which is as likely a call of the program with the wrong arguments, nor what
    runs out wherever it happens to be used last.
    """
    frames = [step.tb_frame.f_code.co_filename for step in _steps(error.__traceback__)]
    if not frames or isinstance(error, TypeError | StartsProcesses | RecursionError | MemoryError):
        return False
    return frames[-1].startswith(PACKAGE) and not frames[-1].endswith(CALLS_FOR_THE_PROGRAM)


def _steps(step: TracebackType | None) -> Iterator[TracebackType]:
    while step is not None:
        yield step
        step = step.tb_next


def _place(error: BaseException) -> Place | None:
    """Where in the program's own code the error was raised, or passed by last."""
    own = [step for step in _steps(error.__traceback__) if not is_internal(step.tb_frame.f_code)]
    return Site(own[-1].tb_frame.f_code, own[-1].tb_lasti).place() if own else None


def _syntax_place(error: SyntaxError) -> Place | None:
    if error.filename is None or not error.lineno:  # line 0 is the file as a whole
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
