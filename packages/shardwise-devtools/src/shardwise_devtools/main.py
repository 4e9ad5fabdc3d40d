"""The command ``shardwise-devtools``: tools for those who build the checker."""

from __future__ import annotations

import click

from .mutate.command import mutate
from .sweep.command import sweep


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """Examine shardwise: its op rules against the numbers, and what it would miss in a program."""


main.add_command(mutate)
main.add_command(sweep)
