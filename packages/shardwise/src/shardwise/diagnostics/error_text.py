"""Exceptions of the user's program as text: in a line, with the source location, as a traceback of its own frames."""

from __future__ import annotations

import os
import re
import sysconfig
import traceback
from collections.abc import Iterator
from types import TracebackType

from .printing.printable import clean
from .source import Site, is_internal
from .source_location import SourceLocation

_LIBRARY = sysconfig.get_path("stdlib") + os.sep
INNERMOST = 200
"""How many frames of one exception are told."""
LONGEST = 2_000
"""How many characters of one line are told: a message may hold a whole tensor, or a file."""


def traceback_of(error: BaseException) -> TracebackType | None:
    """Its traceback, whatever the class of the program makes of attributes."""
    found: TracebackType | None = BaseException.__dict__["__traceback__"].__get__(error)
    return found


def in_one_line(error: BaseException) -> str:
    """``ValueError: no such batch``; survives an exception that cannot be printed."""
    try:
        first = (str(error).splitlines() or [""])[0]
    except BaseException:
        first = "an exception that cannot be printed"
    return f"{type(error).__name__}: {shortened(first)}" if first else type(error).__name__


def location_of(error: BaseException) -> SourceLocation | None:
    """Where in the program's own code the error was raised, or passed by last; in Python's library if all is."""
    own = [step for step in steps(traceback_of(error)) if not is_internal(step.tb_frame.f_code)]
    own = [step for step in own if not _is_of_python(step.tb_frame.f_code.co_filename)] or own
    return Site(own[-1].tb_frame.f_code, own[-1].tb_lasti).location() if own else None


def _is_of_python(file: str) -> bool:
    return file.startswith((_LIBRARY, "<frozen ")) and "-packages" not in file


def syntax_location(error: SyntaxError) -> SourceLocation | None:
    """Where a file does not parse; None if the error is about the file as a whole."""
    if error.filename is None or not error.lineno:
        return None
    column = error.offset - 1 if error.offset else None
    end = error.end_offset - 1 if error.end_offset and error.end_lineno == error.lineno else None
    return SourceLocation(error.filename, error.lineno, error.end_lineno, column, max(end or 0, (column or 0) + 1))


def ways_on(said: str, script: str, command: str) -> tuple[str, ...]:
    """What a program may need that ended with ``said`` before it was through; ``command`` has checked ``script``."""
    if said == "SystemExit(2)":
        return (f"if it lacks or refuses arguments, stderr has its words; they go after --: {command} -- ARGUMENTS",)
    if "attempted relative import" in said and not script.startswith("-m "):
        inside = script.endswith(".py") and not script.startswith((".", os.sep))
        module = script.removesuffix(".py").replace(os.sep, ".") if inside else "PACKAGE.MODULE"
        return (f"run it as a module of its package: {command.replace(script, f'-m {module}', 1)}",)
    if said.startswith("SystemExit") and re.search(r"\b(?:cuda|gpus?)\b", said, re.IGNORECASE):
        return ("everything runs on the CPU here, whatever device is named: go on without a GPU, or do not ask",)
    if re.fullmatch(r"SystemExit\(\d+\)", said):  # a text says itself what is the matter
        return (f"the script ends itself there; what it asks for as an argument goes after --: {command} -- ARGUMENTS",)
    return ()


def own_traceback(error: BaseException) -> tuple[str, int]:
    """The traceback with the frames of the program, its causes with theirs; and how many frames are left out.

    Of a recursion without an end the innermost frames are told, and of an exception that cannot be printed its class.
    """
    try:
        told = traceback.TracebackException.from_exception(error, limit=-INNERMOST, compact=True)
    except Exception:
        passed = list(steps(traceback_of(error)))
        own = [step for step in passed if not is_internal(step.tb_frame.f_code)]
        lines = [f'  File "{step.tb_frame.f_code.co_filename}", line {step.tb_lineno}\n' for step in own]
        return f"{''.join(lines)}{in_one_line(error)}\n", len(passed) - len(own)
    internal = {step.tb_frame.f_code.co_filename for step in _all_steps(error) if is_internal(step.tb_frame.f_code)}
    hidden = 0
    link: traceback.TracebackException | None = told
    while link is not None:
        kept = [summary for summary in link.stack if summary.filename not in internal]
        hidden += len(link.stack) - len(kept)
        link.stack = traceback.StackSummary.from_list(kept)
        link = link.__cause__ or link.__context__
    return harmless("".join(told.format())), hidden


def harmless(text: str) -> str:
    """A traceback for a terminal: an exception's message may hold escape sequences, and lines of any length."""
    return "\n".join(clean(shortened(line)) for line in text.split("\n"))


def shortened(line: str) -> str:
    """The line, of a very long one its begin and its end."""
    left_out = len(line) - LONGEST
    if left_out <= 0:
        return line
    return f"{line[: LONGEST // 2]} ... {left_out} characters left out ... {line[-LONGEST // 2 :]}"


def steps(step: TracebackType | None) -> Iterator[TracebackType]:
    """The frames that an exception has come through, the outermost first."""
    while step is not None:
        yield step
        step = step.tb_next


def _all_steps(error: BaseException) -> Iterator[TracebackType]:
    link: BaseException | None = error
    seen = set()
    while link is not None and id(link) not in seen:  # causes may go round in a circle
        seen.add(id(link))
        yield from steps(link.__traceback__)
        link = link.__cause__ or link.__context__
