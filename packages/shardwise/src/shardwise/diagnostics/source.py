"""Where in the user's program are we? Call sites, cheap to take while checking and resolved only when printed.

A ``Site`` keeps a code object and an instruction offset; Python 3.11 maps the pair to exact columns (PEP 657), so
nothing is formatted before a finding exists.
"""

from __future__ import annotations

import itertools
import os
import sys
from dataclasses import dataclass
from types import CodeType, FrameType

from .finding import Place

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_internal_prefixes: list[str] = [_PACKAGE]
_is_internal: dict[CodeType, bool] = {}


def add_internal_prefix(prefix: str) -> None:
    """Frames of files under ``prefix`` are not the user's; the interop room adds torch's own folder."""
    if prefix not in _internal_prefixes:
        _internal_prefixes.append(prefix)
        _is_internal.clear()


def is_internal(code: CodeType) -> bool:
    """True for frames that belong to shardwise, torch or the import machinery."""
    known = _is_internal.get(code)
    if known is None:
        name = code.co_filename
        known = name.startswith("<frozen") or any(name.startswith(prefix) for prefix in _internal_prefixes)
        _is_internal[code] = known
    return known


@dataclass(frozen=True, slots=True)
class Site:
    """One instruction of one function of the user's program."""

    code: CodeType
    instruction: int

    def place(self) -> Place:
        """The file, lines and columns of this instruction."""
        positions = next(itertools.islice(self.code.co_positions(), self.instruction // 2, None), None)
        line, end_line, column, end_column = positions or (None, None, None, None)
        return Place(
            self.code.co_filename,
            line or self.code.co_firstlineno,
            end_line,
            column,
            end_column,
            getattr(self.code, "co_qualname", self.code.co_name),
        )


def user_frame(depth: int = 1) -> FrameType | None:
    """The innermost frame that is the user's own, starting ``depth`` frames above the caller."""
    try:
        frame: FrameType | None = sys._getframe(depth + 1)
    except ValueError:
        return None
    while frame is not None and is_internal(frame.f_code):
        frame = frame.f_back
    return frame


def user_site(depth: int = 1) -> Site | None:
    """The call in the user's program that is being executed now."""
    frame = user_frame(depth + 1)
    return None if frame is None else Site(frame.f_code, frame.f_lasti)


def user_place(depth: int = 1) -> Place | None:
    site = user_site(depth + 1)
    return None if site is None else site.place()
