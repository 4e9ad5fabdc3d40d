"""Call sites in the user's program, cheap to take while checking and resolved only when printed.

A ``Site`` keeps a code object and an instruction offset; Python 3.11 maps the pair to exact columns (PEP 657), so
nothing is formatted before a finding exists.
"""

from __future__ import annotations

import contextlib
import copy
import dis
import functools
import itertools
import os
import sys
from dataclasses import dataclass
from types import CodeType, FrameType, TracebackType

from .source_location import SourceLocation

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_internal_prefixes: list[str] = [_PACKAGE, contextlib.__file__, copy.__file__, functools.__file__]
_CONSUMERS = ("POP_JUMP", "JUMP_IF", "TO_BOOL", "GET_ITER", "FORMAT_", "UNPACK_", "UNARY_NOT", "LIST_EXTEND")
_OPEN = os.path.join(_PACKAGE, "zoo", "programs") + os.sep
"""Programs that are read, checked and changed as a user's are."""
_is_internal: dict[str, bool] = {}  # by file name: hashing a code object reads all of its instructions


def add_internal_prefix(prefix: str) -> None:
    """Frames of files under ``prefix`` are not the user's; the interop room adds torch's own folder."""
    if prefix not in _internal_prefixes:
        _internal_prefixes.append(prefix)
        _is_internal.clear()


def is_internal(code: CodeType) -> bool:
    """True for frames of shardwise, torch, the import machinery, and what stands between callers, as decorators do."""
    name = code.co_filename
    if name == "<string>":
        return code.co_name.startswith("__")  # a method that a dataclass or a named tuple wrote
    known = _is_internal.get(name)
    if known is None:
        # Besides torch and shardwise: the import machinery, and graphs that torch.fx has turned into code.
        known = name.startswith(("<frozen", "<eval_with_key>", *_internal_prefixes)) and not name.startswith(_OPEN)
        _is_internal[name] = known
    return known


@dataclass(frozen=True, slots=True)
class Site:
    """One instruction of one function of the user's program."""

    code: CodeType
    instruction: int

    def location(self) -> SourceLocation:
        """The file, lines and columns of this instruction."""
        line, end_line, column, end_column = positions_of(self.code, self.instruction)
        return SourceLocation(
            self.code.co_filename,
            line or self.code.co_firstlineno,
            end_line,
            column,
            end_column,
            getattr(self.code, "co_qualname", self.code.co_name),
        )


Position = tuple[int | None, int | None, int | None, int | None]
"""First and last line, first column and column after the last, as far as Python knows them."""


def positions_of(code: CodeType, instruction: int) -> Position:
    """First and last line, first and last column of the expression that an instruction belongs to.

    A truth test or an iteration carries the span of its whole statement; what is meant is the value it looks at, which
    the instruction before it has made.
    """
    unit = instruction // 2
    if opname_of(code, instruction).startswith(_CONSUMERS):
        unit = _instruction_unit(_bytes_of(code, instruction), unit) - 1
    if instruction < _FAR:
        return next(itertools.islice(code.co_positions(), unit, None), (None, None, None, None))
    positions = _whole(code).positions
    return positions[unit] if unit < len(positions) else (None, None, None, None)


def opname_of(code: CodeType, instruction: int) -> str:
    """The name of the instruction at offset ``instruction``."""
    raw = _bytes_of(code, instruction)
    return dis.opname[raw[2 * _instruction_unit(raw, instruction // 2)]] if 0 <= instruction < len(raw) else ""


@dataclass(frozen=True, slots=True)
class _Whole:
    """All instructions of a function, which Python copies or goes through each time that it is asked for one."""

    code: CodeType
    raw: bytes
    positions: list[Position]


_FAR = 8192
"""Instructions from this offset on are looked up in what is kept of the last such function: a script may be one."""
_last: _Whole | None = None


def _whole(code: CodeType) -> _Whole:
    global _last
    last = _last
    if last is None or last.code is not code:
        _last = last = _Whole(code, code.co_code, list(code.co_positions()))
    return last


def _bytes_of(code: CodeType, instruction: int) -> bytes:
    return code.co_code if instruction < _FAR else _whole(code).raw


def _instruction_unit(raw: bytes, unit: int) -> int:
    """During a call between Python functions ``f_lasti`` is at the last inline cache of the calling instruction."""
    while unit > 0 and dis.opname[raw[2 * unit]] == "CACHE":
        unit -= 1
    return unit


def user_frame(depth: int = 1) -> FrameType | None:
    """The innermost frame that is the user's own, starting ``depth`` frames above the caller."""
    try:
        frame: FrameType | None = sys._getframe(depth + 1)
    except ValueError:
        return None
    while frame is not None and is_internal(frame.f_code):
        frame = frame.f_back
    return frame


def is_library_calling(depth: int = 1) -> bool:
    """True if what runs now was called by torch's own Python code, and not by the user's."""
    frame: FrameType | None = sys._getframe(depth + 1)
    while frame is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame = frame.f_back
    return frame is not None and is_internal(frame.f_code)


def user_site(depth: int = 1) -> Site | None:
    """The call in the user's program that is being executed now."""
    frame = user_frame(depth + 1)
    return None if frame is None else Site(frame.f_code, frame.f_lasti)


def user_codes() -> frozenset[CodeType]:
    """The functions of the user's program that are being executed now."""
    codes, frame = [], user_frame()
    while frame is not None:
        codes.append(frame.f_code)
        frame = frame.f_back
    return frozenset(code for code in codes if not is_internal(code))


def user_location(depth: int = 1) -> SourceLocation | None:
    site = user_site(depth + 1)
    return None if site is None else site.location()


def location_of_traceback(traceback: TracebackType | None) -> SourceLocation | None:
    """The innermost call in the user's own code that an exception came through; None if it has not reached any."""
    site = None
    while traceback is not None:
        code = traceback.tb_frame.f_code
        if not is_internal(code):
            site = Site(code, traceback.tb_lasti)
        traceback = traceback.tb_next
    return None if site is None else site.location()
