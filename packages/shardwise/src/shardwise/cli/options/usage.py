"""An error of the library, said as wrong usage of a command: what is wrong, and what to try."""

from __future__ import annotations

import click

from shardwise.diagnostics.errors import SpmdTypeError


def wrong_usage(error: SpmdTypeError, **options: str) -> click.UsageError:
    """What is wrong without code and page, and the help in one sentence.

    ``options``  by the name of an argument of the function, the option that it is here.
    """
    tries = ["try " + ", or ".join(error.help)] if error.help else []
    text = "; ".join([error.message, *tries])
    for argument, option in options.items():
        text = text.replace(f"{argument}=", f"{option} ")
    return click.UsageError(text)
