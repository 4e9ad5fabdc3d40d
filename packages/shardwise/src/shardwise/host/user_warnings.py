"""At which line is a warning shown that torch gives while shardwise makes a call for the program? At the program's."""

from __future__ import annotations

import contextlib
import os
import warnings
from collections.abc import Iterator
from typing import TextIO

from shardwise.diagnostics.source import user_location

from .attribute_patch import patched

_OWN = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep


@contextlib.contextmanager
def warnings_at_own_lines() -> Iterator[None]:
    """Inside the ``with`` block a warning that C++ code gives is shown where the program has made the call.

    Python takes the innermost frame for its place, which is one of ours. A program that shows warnings in its own way
    keeps it.
    """
    show = warnings.showwarning

    def shown(
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        file: TextIO | None = None,
        line: str | None = None,
    ) -> None:
        # Above are this function and the one of the module warnings that calls it.
        location = user_location(2) if filename.startswith(_OWN) else None
        if location is not None:
            filename, lineno = location.file, location.line
        show(message, category, filename, lineno, file, line)

    with patched(warnings, "showwarning", shown):
        yield
