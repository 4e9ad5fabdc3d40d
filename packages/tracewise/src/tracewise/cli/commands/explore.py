"""`tracewise explore`: a local web explorer of traces and of any table of events."""

from __future__ import annotations

import secrets
import socket
import threading
import time
import webbrowser
from contextlib import ExitStack
from datetime import UTC, timedelta, timezone, tzinfo
from typing import TYPE_CHECKING

import click

from tracewise.cli.inputs import path_arguments, tell_damage
from tracewise.read.archive import InputError
from tracewise.read.source import open_sources

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tracewise.store.table import Table
    from tracewise.store.traces import TraceTables

LOOPBACK = ("127.0.0.1", "localhost", "::1")
# While logs grow they are read again, but at most this share of the time goes into reading.
FOLLOW_SHARE = 0.2
FOLLOW_S = 1.0


@click.command()
@path_arguments
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="0, the default, takes a free one.")
@click.option("--host", default="127.0.0.1", show_default=True, help="Another one needs --token.")
@click.option("--token", metavar="TOKEN", help="What opens the explorer; a random one by default.")
@click.option("--open/--no-open", "opens", default=True, help="Open a browser.")
@click.option("--follow", is_flag=True, help="Read logs again while a program writes them.")
@click.option("--sql", "takes_sql", is_flag=True, help="A page for SELECT statements of your own, at /sql.")
@click.option("--query-timeout", type=click.FloatRange(0.1, 3600), default=10.0, show_default=True, metavar="SECONDS")
@click.option("--memory", default="768MB", show_default=True, metavar="SIZE", help="Of the database.")
@click.option("--processes", type=click.IntRange(1, 256), metavar="N", help="That read logs; one a core by default.")
def command(
    paths: tuple[str, ...],
    port: int,
    host: str,
    token: str | None,
    opens: bool,
    follow: bool,
    takes_sql: bool,
    query_timeout: float,
    memory: str,
    processes: int | None,
) -> None:
    """Explore trace logs, Parquet, CSV, JSON lines, SQLite and DuckDB files in a browser."""
    if host not in LOOPBACK and not token:
        raise click.UsageError(f"--host {host} lets others in: give a --token that they must know, or leave --host out")
    try:
        import uvicorn

        from tracewise.explore.engine import Engine
        from tracewise.explore.security import Access
        from tracewise.explore.server import Explorer
        from tracewise.store.database import Database
        from tracewise.store.opening import fill
    except ImportError as error:
        raise InputError(
            f"the explorer needs {error.name}; install it with: pip install 'tracewise[explore]'"
        ) from None
    with ExitStack() as stack:
        sources = stack.enter_context(open_sources(paths))
        database = stack.enter_context(Database(memory_limit=memory))
        started = time.monotonic()
        traces = fill(database, sources, processes)
        database.lock()
        if traces:
            tell_damage(traces.health)
        _tell(f"{_counts(database.tables.values())} in {time.monotonic() - started:.1f} s")
        listener = stack.enter_context(_listener(host, port))
        bound_port = listener.getsockname()[1]
        access = Access(host, bound_port, token or secrets.token_urlsafe(24))
        explorer = Explorer(
            Engine(database, query_timeout),
            access,
            log_zone=_log_zone(traces),
            payload=traces.payload if traces else None,
            takes_sql=takes_sql,
        )
        if follow and traces:
            threading.Thread(target=_follow, args=[traces], daemon=True).start()
        address = f"http://{f'[{host}]' if ':' in host else host}:{bound_port}/?token={access.token}"
        click.echo(address)
        if opens:
            webbrowser.open(address)
        server = uvicorn.Server(uvicorn.Config(explorer.app, log_level="warning", access_log=False))
        server.run(sockets=[listener])


def _listener(host: str, port: int) -> socket.socket:
    """A socket that takes connections, so that the address can be told before the server runs."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen()  # now, so that a browser that is quicker than the server waits in place of failing
    except OSError as error:
        listener.close()
        raise InputError(f"--host {host} --port {port}: cannot be bound ({error.strerror}); try --port 0") from None
    return listener


def _log_zone(traces: TraceTables | None) -> tzinfo:
    """The zone that the logs were written in, UTC for other tables."""
    offset_us = traces.offset_us if traces else 0
    return timezone(timedelta(microseconds=offset_us)) if abs(offset_us) < 86_400_000_000 and offset_us else UTC


def _follow(traces: TraceTables) -> None:
    while True:
        started = time.monotonic()
        try:
            traces.follow()
        except Exception as error:  # a log that went away, or a full disk, must not end the following for good
            _tell(f"the logs could not be read again ({error}); the tables stay as they were")
        time.sleep(max(FOLLOW_S, (time.monotonic() - started) / FOLLOW_SHARE))


def _counts(tables: Iterable[Table]) -> str:
    return ", ".join(f"{table.rows:,} {table.name}" for table in tables)


def _tell(text: str) -> None:
    click.echo(f"tracewise: {text}", err=True)
