"""Options that several commands share: how types are checked, how a report is shown, how long two runs may take."""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Callable
from typing import Any

import click

Command = Callable[..., Any]


class FiniteRange(click.FloatRange):
    """A number within bounds; neither ``nan``, which is outside of none, nor ``inf``."""

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        number: float = super().convert(value, param, ctx)  # type: ignore[arg-type]
        if not math.isfinite(number):
            self.fail(f"{value} is no finite number", param, ctx)
        return number


def type_options(command: Command) -> Command:
    """``strict``, ``local`` and ``partials``."""
    for option in (
        click.option(
            "--partials",
            type=click.Choice(["infer", "explicit"]),
            default="infer",
            help="With --global: whether a contraction over a sharded dim may leave a pending sum without asking for "
            "it (default: infer).",
        ),
        click.option(
            "--local/--global",
            "local",
            default=True,
            help="Local types only, or global ones too: which dims are sharded, through every operator "
            "(default: local).",
        ),
        click.option(
            "--strict/--permissive",
            default=False,
            help="Whether tensors without a type are errors where typed ones are in play, or make results unknown, of "
            "which nothing is claimed (default: permissive).",
        ),
    ):
        command = option(command)
    return command


color_option = click.option(
    "--color",
    type=click.Choice(["auto", "always", "never"]),
    default="auto",
    help="Colour in the text form (auto: on a terminal, unless NO_COLOR is set).",
)

timeout_option = click.option(
    "--timeout",
    "timeout_s",
    type=FiniteRange(min=1.0),
    default=300.0,
    metavar="SECONDS",
    help="For each of the two runs (default: 300).",
)


def require_writer(options: str) -> None:
    """A usage error if the library that changes source is not installed. ``options``: what needs it."""
    if importlib.util.find_spec("libcst") is None:
        raise click.UsageError(f"{options} need the package libcst: pip install 'shardwise[write]'")
