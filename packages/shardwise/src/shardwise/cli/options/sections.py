"""The many options of ``check`` and ``verify``, listed by what they are about."""

from __future__ import annotations

import click

SECTIONS = {
    "What is run": "-m --mesh --world-size --rank --ranks --record --references --against --feed --fake --device "
    "--double --timeout",
    "What is checked": "--strict --local --partials --observe --every --rtol",
    "What is reported": "--select --ignore --baseline --write-baseline --show --statistics --all --allow-inconclusive "
    "--trace",
    "How it is shown": "--format --color --annotate --html --schedule",
    "Mending": "--diff --fix --watch",
}
"""Headings, and the options below each as they are written first; all others stand below "Options"."""


class SectionedCommand(click.Command):
    """A command whose help has the options below these headings."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        shown = {param.opts[0]: param.get_help_record(ctx) for param in self.get_params(ctx)}
        records = {name: record for name, record in shown.items() if record is not None}
        for heading, names in SECTIONS.items():
            if own := [records.pop(name) for name in names.split() if name in records]:
                with formatter.section(heading):
                    formatter.write_dl(own)
        with formatter.section("Options"):
            formatter.write_dl(list(records.values()))
