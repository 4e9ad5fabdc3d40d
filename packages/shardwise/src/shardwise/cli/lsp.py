"""``shardwise lsp``: the language server, for editors. It talks over standard input and output."""

from __future__ import annotations

import importlib.util

import click

from shardwise import __version__

from .runs.guard import dies_by_request


@click.command()
def lsp() -> None:
    """Serve an editor: findings with their fixes, types behind names, the history of a tensor.

    The editor starts this command and talks to it over standard input and output. Which script is run says `script` in
    [tool.shardwise] of pyproject.toml, or in the editor's initialisation options. docs/howto/editors.md has the lines
    for each editor.
    """
    if importlib.util.find_spec("pygls") is None:
        raise click.UsageError("shardwise lsp needs the package pygls: pip install 'shardwise[lsp]'")
    from shardwise.servers.language_server import make_server

    dies_by_request()
    make_server(__version__).start_io()
