"""``shardwise explain``: what does a diagnostic code mean? Prints its page, or the list of all codes."""

from __future__ import annotations

import os
import shutil
import sys

import click

from shardwise.diagnostics.errors import SpmdValueError

WIDEST = 100


@click.command()
@click.argument("code", required=False)
def explain(code: str | None) -> None:
    """Explain a diagnostic CODE (SW112, 112 or its name), or list all of them.

    A page says what is wrong, shows a program that has the mistake, why it is one, with numbers, and the program
    repaired.
    """
    from shardwise.diagnostics.explain import index, render

    if code is None:
        click.echo(index())
        return
    terminal = sys.stdout.isatty()
    width = min(shutil.get_terminal_size().columns, WIDEST)
    try:
        text = render(code, color=terminal and not os.environ.get("NO_COLOR"), width=width)
    except SpmdValueError as error:
        said = "; ".join([error.message, *(f"try {line}" for line in error.help)])
        raise click.UsageError(said) from None
    click.echo(text, color=True if terminal else None)
