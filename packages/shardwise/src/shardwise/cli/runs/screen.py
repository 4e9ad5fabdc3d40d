"""The screen that a report is shown on: is it coloured, and how wide are its lines?"""

from __future__ import annotations

import os
import shutil
import sys
from dataclasses import dataclass
from typing import Literal

from shardwise.diagnostics.finding import WIDTH

Color = Literal["auto", "always", "never"]
"""What ``--color`` says."""


@dataclass(frozen=True)
class Screen:
    """How a report in text is shown; ``width`` in columns."""

    color: bool
    width: int


def screen(color: Color) -> Screen:
    """That of stdout."""
    terminal = sys.stdout.isatty()
    plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    coloured = color == "always" or (color == "auto" and terminal and not plain)
    return Screen(coloured, shutil.get_terminal_size((WIDTH, 0)).columns if terminal else WIDTH)
