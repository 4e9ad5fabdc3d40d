"""What does ``-m package.module`` say? A module, as ``python -m`` takes it, and never a file."""

from __future__ import annotations

import os

import click


class ModuleParam(click.ParamType):  # type: ignore[type-arg]  # no generic in click 8.1
    """The dotted name of a module."""

    name = "module"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if not all(part.isidentifier() for part in value.split(".")):
            self.fail(f"{value!r} is no name of a module, as package.module is{_as_file(value)}", param, ctx)
        return value


def _as_file(name: str) -> str:
    return f"; leave -m out to run the file {name}" if os.path.isfile(name) else ""
