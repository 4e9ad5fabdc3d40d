"""``shardwise explain``: what does a diagnostic code mean? Prints its page, the codes that words are about, or all."""

from __future__ import annotations

import functools
import os
import re
import shutil
import sys

import click

from shardwise.diagnostics.errors import SpmdValueError

WIDEST = 100
_CODE = re.compile(r"(SW)?\d+", re.IGNORECASE)

EPILOG = """\b
Examples:
  shardwise explain SW112
  shardwise explain SW112 SW402
  shardwise explain term-added-per-rank
  shardwise explain bias added on every rank
"""


@click.command(epilog=EPILOG)
@click.argument("words", nargs=-1, metavar="[CODE... | WORDS...]")
def explain(words: tuple[str, ...]) -> None:
    """Explain diagnostic codes (SW112, 112) or one by its name, find one by what it is about, or list all of them.

    A page says what is wrong, shows a program that has the mistake, why it is one, with numbers, and the program
    repaired.
    """
    from shardwise.diagnostics.explain import index, render, search

    if not words:
        click.echo(index())
        return
    terminal = sys.stdout.isatty()
    width = min(shutil.get_terminal_size().columns, WIDEST)
    page = functools.partial(render, color=terminal and not os.environ.get("NO_COLOR"), width=width)
    pages = words if all(map(_CODE.fullmatch, words)) else ("-".join(words),)
    try:
        text = "\n\n".join(map(page, pages))
    except SpmdValueError as error:
        found = [] if len(words) == 1 and any(letter in words[0] for letter in "-0123456789") else search(words)
        if not found:
            near = f"did you mean {', '.join(error.help)}? " if error.help else ""
            raise click.UsageError(f"{error.message}; {near}shardwise explain lists all codes") from None
        longest = max(len(code.name) for code in found)
        text = "\n".join(f"{code.code}  {code.name:<{longest}}  {code.summary}" for code in found)
    click.echo(text, color=True if terminal else None)
