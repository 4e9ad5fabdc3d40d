"""``shardwise mcp``: the commands as tools, for coding agents. It talks over standard input and output."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import click

from .runs.guard import dies_by_request


@click.command()
@click.option(
    "--folder",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    default=Path("."),
    help="The project's folder, to which paths are relative (default: this one).",
)
def mcp(folder: Path) -> None:
    """Serve a coding agent: check, verify, explain, rules, plan and draw as tools (Model Context Protocol).

    The agent's program starts this command and talks to it over standard input and output. docs/howto/agents.md has the
    loop of check, fix and verify, and what the answers look like.
    """
    if importlib.util.find_spec("mcp") is None:
        raise click.UsageError("shardwise mcp needs the package mcp: pip install 'shardwise[mcp]'")
    from shardwise.servers.agent_tools import make_server

    dies_by_request()
    make_server(folder.resolve()).run()
