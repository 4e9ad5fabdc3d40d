"""``--annotate``: the run beside its source, in the terminal."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable
from typing import Any

import click

from shardwise.diagnostics.result import RunResult

Command = Callable[..., Any]


def annotate_option(command: Command) -> Command:
    """``annotate``."""
    return click.option(
        "--annotate",
        is_flag=True,
        help="Print the program with the types of what each line binds, before the report.",
    )(command)


def show_annotated(result: RunResult, form: str, color: str, whole: bool) -> None:
    """Print the program with its types; forms for programs have them under ``record``."""
    if form != "text":
        return
    from shardwise.diagnostics.finding import WIDTH
    from shardwise.report.annotated_source import annotated

    terminal = sys.stdout.isatty()
    coloured = color == "always" or (color == "auto" and terminal and not os.environ.get("NO_COLOR"))
    width = shutil.get_terminal_size((WIDTH, 0)).columns if terminal else WIDTH
    text = annotated(result, color=coloured, width=width, whole=whole)
    click.echo(f"{text}\n" if text else "", color=True)
