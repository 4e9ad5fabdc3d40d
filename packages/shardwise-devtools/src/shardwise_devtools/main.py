"""The command ``shardwise-devtools``: tools for those who build the checker."""

from __future__ import annotations

import click

from shardwise.diagnostics.result import ExitCode

from .ecosystem.command import ecosystem
from .figures import figures
from .fixes.command import fixes
from .mutate.advice_command import advice
from .mutate.command import mutate
from .mutate.mutants_command import mutants
from .rules.command import rules
from .sweep.command import sweep
from .sweep.crash_command import crashes


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """Examine shardwise: its op rules against the numbers, and what it would miss in a program."""


@main.result_callback()
def _exit(code: ExitCode) -> None:
    """What a command gives back is the exit code: 1 for findings, among them claims that the numbers refute."""
    click.get_current_context().exit(code)


main.add_command(advice)
main.add_command(crashes)
main.add_command(ecosystem)
main.add_command(figures)
main.add_command(fixes)
main.add_command(mutants)
main.add_command(mutate)
main.add_command(rules)
main.add_command(sweep)
