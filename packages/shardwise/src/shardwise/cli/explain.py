"""``shardwise explain``: what does a diagnostic code mean? Prints its page, the codes that words are about, or all."""

from __future__ import annotations

import os
import shutil
import sys

import click

from shardwise.diagnostics.errors import SpmdValueError

WIDEST = 100

EPILOG = """\b
Examples:
  shardwise explain SW112
  shardwise explain term-added-per-rank
  shardwise explain bias added on every rank
"""


@click.command(epilog=EPILOG)
@click.argument("words", nargs=-1, metavar="[CODE | WORDS...]")
def explain(words: tuple[str, ...]) -> None:
    """Explain a diagnostic code (SW112, 112 or its name), find one by what it is about, or list all of them.

    A page says what is wrong, shows a program that has the mistake, why it is one, with numbers, and the program
    repaired.
    """
    from shardwise.diagnostics.explain import index, render, search

    if not words:
        click.echo(index())
        return
    terminal = sys.stdout.isatty()
    width = min(shutil.get_terminal_size().columns, WIDEST)
    try:
        text = render("-".join(words), color=terminal and not os.environ.get("NO_COLOR"), width=width)
    except SpmdValueError as error:
        found = [] if len(words) == 1 and any(letter in words[0] for letter in "-0123456789") else search(words)
        if not found:
            near = f"did you mean {', '.join(error.help)}? " if error.help else ""
            raise click.UsageError(f"{error.message}; {near}shardwise explain lists all codes") from None
        longest = max(len(code.name) for code in found)
        text = "\n".join(f"{code.code}  {code.name:<{longest}}  {code.summary}" for code in found)
    click.echo(text, color=True if terminal else None)
