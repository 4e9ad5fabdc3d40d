"""``shardwise doctor``: what the installed torch has and has not of the private names that checking needs."""

from __future__ import annotations

import platform
import sys

import click

from shardwise import __version__
from shardwise.diagnostics.result import ExitCode


@click.command()
def doctor() -> None:
    """Say whether this torch is one that shardwise was tested with, and what cannot be followed on it.

    Exit codes: 0 everything that every check needs is there, 2 something of it is missing.
    """
    import torch

    from shardwise.interop.torch_compat import TESTED, missing, outside, registered

    first, last = TESTED
    click.echo(f"shardwise {__version__}, Python {platform.python_version()}, torch {torch.__version__}")
    stands = outside()
    click.echo(f"tested with torch {first} to {last}" + (f"; this one is {stands}, untested" if stands else ""))
    lost = missing()
    names = registered()
    click.echo(f"{len(names) - len(lost)} of {len(names)} private names of torch are there")
    for name in lost:
        click.echo(f"  {name.name} is missing: no {'check' if name.tier == 1 else 'support for'}: {name.lost}")
    sys.exit(ExitCode.BROKEN if any(name.tier == 1 for name in lost) else ExitCode.CLEAN)
