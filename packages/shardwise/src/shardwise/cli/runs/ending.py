"""How did the program end, and where? An exception becomes a finding or a reason, with the program's own frames."""

from __future__ import annotations

import contextlib
import sys
import threading
import traceback
from collections.abc import Iterator
from dataclasses import replace

import click

from shardwise.diagnostics.error_text import (
    harmless,
    in_one_line,
    location_of,
    own_traceback,
    steps,
    syntax_location,
    traceback_of,
)
from shardwise.diagnostics.errors import SpmdTypeError, attach
from shardwise.diagnostics.finding import ENDS_PROGRAM
from shardwise.diagnostics.printing.printable import safe_repr
from shardwise.diagnostics.result import NO_EXCEPTION, Collector, StopReason
from shardwise.host.blame import is_ours
from shardwise.host.no_run import NoProgram, StartsProcesses
from shardwise.uniformity.calls import CutOff
from shardwise.worlds.absent_objects import OtherRanksNeeded


@contextlib.contextmanager
def ending(collector: Collector, interrupted: threading.Event, whole: bool) -> Iterator[None]:
    """Turn the way in which the program ends inside the block into part of the result.

    ``whole`` asks for tracebacks with every frame.
    """
    try:
        yield
    except KeyboardInterrupt as error:
        collector.stop(StopReason.INTERRUPTED, location=location_of(error))
    except SystemExit as error:
        if not _is_success(error.code):
            collector.stop(StopReason.SCRIPT_ERROR, f"SystemExit({safe_repr(error.code)})", location_of(error))
    except SyntaxError as error:
        collector.stop(StopReason.SCRIPT_ERROR, in_one_line(error), syntax_location(error) or location_of(error))
    except SpmdTypeError as error:
        finding = attach(error, location=location_of(error))
        collector.add(replace(finding, facts=(*finding.facts, ENDS_PROGRAM)))
        collector.stop(StopReason.SCRIPT_ERROR, type(error).__name__, location_of(error))
    except CutOff:
        pass  # what keeps this rank waiting is a finding about all of them
    except (NoProgram, OtherRanksNeeded):
        raise
    except StartsProcesses as error:
        said = str(error).removeprefix("the program ")
        collector.stop(StopReason.SCRIPT_ERROR, f"{NO_EXCEPTION}{said}", location_of(error))
    except BaseException as error:
        if issubclass(type(error), click.ClickException) and not _is_of_program(error):
            raise
        ours = is_ours(error)
        print(_traceback(error, whole or ours), file=sys.stderr, end="", flush=True)
        said = f"{in_one_line(error)} (a failure of shardwise itself)" if ours else in_one_line(error)
        collector.stop(StopReason.SCRIPT_ERROR, said, location_of(error))
    if interrupted.is_set():
        collector.stop(StopReason.INTERRUPTED)


def _is_of_program(error: BaseException) -> bool:
    """Did it come out of the program, which may be made with click as this command is?"""
    return any(step.tb_frame.f_globals.get("__name__") == "__main__" for step in steps(traceback_of(error)))


def _is_success(code: object) -> bool:
    return code is None or (isinstance(code, int) and code == 0)


def _traceback(error: BaseException, whole: bool) -> str:
    """The traceback with the frames of the program, or with all."""
    if whole:
        return harmless("".join(traceback.TracebackException.from_exception(error, compact=True).format()))
    text, hidden = own_traceback(error)
    return text + (
        f"({hidden} frames of torch and shardwise are left out; shardwise check --all shows them)\n" if hidden else ""
    )
