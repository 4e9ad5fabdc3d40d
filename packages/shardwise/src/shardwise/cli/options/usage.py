"""An error of the library, said as wrong usage of a command: what is wrong, and what to try."""

from __future__ import annotations

import click

from shardwise.diagnostics.errors import SpmdTypeError


def wrong_usage(error: SpmdTypeError) -> click.UsageError:
    """What is wrong without code and page, and the help in one sentence."""
    tries = ["try " + ", or ".join(error.help)] if error.help else []
    return click.UsageError("; ".join([error.message, *tries]))
