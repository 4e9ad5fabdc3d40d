"""What does ``-m package.module`` say? A module, as ``python -m`` takes it, and never a file."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TypeVar

import click

Command = TypeVar("Command", bound=Callable[..., object])


class ModuleParam(click.ParamType):  # type: ignore[type-arg]  # no generic in click 8.1
    """The dotted name of a module."""

    name = "module"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if not all(part.isidentifier() for part in value.split(".")):
            self.fail(f"{value!r} is no name of a module, as package.module is{_as_file(value)}", param, ctx)
        return value


def _as_file(name: str) -> str:
    return f"; leave -m out to run the file {name}" if os.path.isfile(name) else ""


def module_option(verb: str) -> Callable[[Command], Command]:
    """``-m``, where a command does to a module, as ``verb`` says, what it does to a script."""
    return click.option(
        "-m",
        "module",
        type=ModuleParam(),
        metavar="MODULE",
        help=f"{verb} a module, as python -m runs it, instead of a script.",
    )
