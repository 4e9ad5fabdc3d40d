"""The explorer's server: addresses to pages, each answered in a thread that is stopped when the client goes away."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, tzinfo
from pathlib import Path
from typing import Any, TypeVar
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import anyio
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from tracewise.explore import pages, statements
from tracewise.explore.answers.compute import compute
from tracewise.explore.bind import Bound, Named, bind, choose_time
from tracewise.explore.engine import Engine, QueryError, QueryStopped, Session, Stop, only_select
from tracewise.explore.export import result_csv, result_json
from tracewise.explore.expr import ColumnRef
from tracewise.explore.links import table_link
from tracewise.explore.query import Query
from tracewise.explore.results import NothingToShow, Result
from tracewise.explore.security import Access, Guard
from tracewise.explore.text import cell_text
from tracewise.explore.timeparse import Clock
from tracewise.explore.url import Issue, parse_query, query_string
from tracewise.store.table import Table

STATIC = Path(__file__).parent / "static"
SUGGESTIONS = 20
SQL_ROWS = 1_000
CLIENT_GONE = 499  # as others call it; nobody reads this answer
T = TypeVar("T")
Payload = Callable[[int], str | None]


class Explorer:
    """The application over one engine. ``payload`` gives the text behind a row of events; ``now_us`` is for tests."""

    def __init__(
        self,
        engine: Engine,
        access: Access,
        *,
        log_zone: tzinfo = UTC,
        payload: Payload | None = None,
        takes_sql: bool = False,
        now_us: Callable[[], int] = lambda: time.time_ns() // 1_000,
    ) -> None:
        self.engine, self.log_zone, self.payload, self.now_us = engine, log_zone, payload, now_us
        routes = [
            Route("/", self.index),
            Route("/t/{table}", self.table),
            Route("/t/{table}/rows.{extension}", self.rows),
            Route("/t/{table}/values", self.values),
            Route("/t/{table}/row/{row_key:int}", self.row),
            Mount("/static", StaticFiles(directory=STATIC)),
        ]
        if takes_sql:
            routes.append(Route("/sql", self.sql))
        self.app = Guard(Starlette(routes=routes), access)

    @property
    def tables(self) -> Mapping[str, Table]:
        return self.engine.database.tables

    async def index(self, request: Request) -> Response:
        if len(self.tables) == 1:
            return RedirectResponse(table_link(next(iter(self.tables))))
        return HTMLResponse(pages.index_html(self.tables.values(), self.log_zone))

    async def table(self, request: Request) -> Response:
        table = self.tables.get(request.path_params["table"])
        if table is None:
            return HTMLResponse(pages.message_html("No such table", "The list of tables shows what there is."), 404)
        query, issues = parse_query(_query_string(request))
        canonical = query_string(query)
        if not issues and _query_string(request) not in ("", canonical):
            # A form sends every control; the address keeps what differs from the defaults.
            return RedirectResponse(f"{table_link(table.name)}?{canonical}", 303)
        try:
            page = await self.interruptible(request, lambda stop: self.page(table, query, issues, stop))
        except QueryStopped as error:
            return PlainTextResponse(str(error), CLIENT_GONE)
        return HTMLResponse(page.html())

    def page(self, table: Table, query: Query, issues: tuple[Issue, ...], stop: Stop) -> pages.Page:
        with self.engine.session(stop) as session:
            bound, more = self.bound(table, query, session)
            result, failure = self.result(bound, session)
            return pages.Page(self.tables.values(), bound, (*issues, *more), result, failure, session.ran)

    def result(self, bound: Bound, session: Session) -> tuple[Result | None, str]:
        """The view's result, or None and why there is none."""
        try:
            return compute(bound, session), ""
        except QueryStopped:
            if session.stop.reason == CLIENT_WENT:
                raise
            return None, session.stop.reason
        except (QueryError, NothingToShow) as error:
            return None, str(error)

    def bound(self, table: Table, query: Query, session: Session) -> tuple[Bound, tuple[Issue, ...]]:
        """The query checked against the table, and what of it was left out."""
        zone, zone_issues = self.zone(query.zone)
        time_column, time_issues = choose_time(query, table)
        span: list[tuple[Any, ...]] = []
        if time_column:
            with contextlib.suppress(QueryError):
                span = session.fetch(statements.extent(table, time_column))
        first, last = span[0] if span and span[0][0] is not None else (0, 0)
        if not span or span[0][0] is None:
            time_column = None
        bound = bind(query, table, time_column, Clock(self.now_us(), first, last, zone))
        return bound, (*zone_issues, *time_issues, *bound.issues)

    def zone(self, name: str) -> tuple[tzinfo, tuple[Issue, ...]]:
        match name.strip():
            case "" | "log":
                return self.log_zone, ()
            case "utc" | "UTC":
                return UTC, ()
            case "local":
                return datetime.now().astimezone().tzinfo or UTC, ()
        try:
            return ZoneInfo(name.strip()), ()
        except (ZoneInfoNotFoundError, ValueError, OSError):
            return self.log_zone, (
                Issue("tz", name, "no such time zone; write log, local, utc or a name like Asia/Tokyo"),
            )

    async def rows(self, request: Request) -> Response:
        """The result of a query as JSON or CSV."""
        table, extension = self.tables.get(request.path_params["table"]), request.path_params["extension"]
        if table is None or extension not in ("json", "csv"):
            return PlainTextResponse("There are rows.json and rows.csv of the tables on the first page.", 404)
        query, issues = parse_query(_query_string(request))
        try:
            page = await self.interruptible(request, lambda stop: self.page(table, query, issues, stop))
        except QueryStopped as error:
            return PlainTextResponse(str(error), CLIENT_GONE)
        if extension == "json":
            found = result_json(page.bound, page.result, page.failure, page.issues, page.ran)
            return JSONResponse(found, 200 if page.result else 400)
        if page.result is None:
            return PlainTextResponse(page.failure, 400)
        # As plain text: the type never comes from the data, and a browser shows it in place of saving it.
        return PlainTextResponse(result_csv(page.bound, page.result))

    async def values(self, request: Request) -> Response:
        """Frequent values of a column among the rows that the other filters leave."""
        table = self.tables.get(request.path_params["table"])
        if table is None:
            return JSONResponse({"values": []}, 404)
        query, _ = parse_query(_query_string(request))
        wanted = dict(query.unknown)
        try:
            found = await self.interruptible(
                request,
                lambda stop: self.suggested(table, query, wanted.get("column", ""), wanted.get("prefix", ""), stop),
            )
        except QueryError as error:
            return JSONResponse({"values": [], "error": str(error)}, 400)
        return JSONResponse({"values": found})

    def suggested(self, table: Table, query: Query, name: str, prefix: str, stop: Stop) -> list[dict[str, Any]]:
        with self.engine.session(stop) as session:
            bound, _ = self.bound(table, query, session)
            column = bound.named(name)
            if column is None:
                raise QueryError(f"no column {name!r}")
            rows = session.fetch(statements.suggestions(bound, column, prefix, SUGGESTIONS))
            zone = bound.clock.zone
            return [
                {"value": cell_text(row[0], column.kind, zone), "rows": row[1]} for row in rows if row[0] is not None
            ]

    async def sql(self, request: Request) -> Response:
        """A page with a box for raw SQL; only a SELECT runs, read-only and without access to files."""
        text = request.query_params.get("q", "")
        try:
            page = await self.interruptible(request, lambda stop: self.sql_page(text, stop))
        except QueryStopped as error:
            return PlainTextResponse(str(error), CLIENT_GONE)
        return HTMLResponse(page)

    def sql_page(self, text: str, stop: Stop) -> str:
        if not text.strip():
            return pages.sql_html(self.tables.values(), text, [], [], "")
        with self.engine.session(stop) as session:
            try:
                rows = session.fetch(only_select(text), SQL_ROWS)
            except QueryError as error:
                if session.stop.reason == CLIENT_WENT:
                    raise
                return pages.sql_html(self.tables.values(), text, [], [], str(error))
            return pages.sql_html(self.tables.values(), text, session.column_names, rows, "")

    async def row(self, request: Request) -> Response:
        """One row in full; of a trace, with its payload."""
        table, row_key = self.tables.get(request.path_params["table"]), request.path_params["row_key"]
        columns = [Named(column.name, ColumnRef(column)) for column in table.columns] if table else []
        try:
            with self.engine.session() as session:
                rows = session.fetch(statements.one_row(table, columns, row_key)) if table else []
        except QueryError:
            rows = []
        if table is None or not rows:
            return HTMLResponse(pages.message_html("No such row", "The table has no row of this number."), 404)
        payload = self.payload(row_key) if self.payload and table.name == "events" else None
        cells = list(zip(columns, rows[0], strict=True))
        return HTMLResponse(pages.row_html(table, row_key, cells, self.log_zone, payload))

    async def interruptible(self, request: Request, work: Callable[[Stop], T]) -> T:
        """``work`` in a thread of its own, stopped when the client goes away."""
        stop = Stop()
        outcome: list[T] = []
        failure: list[Exception] = []

        def run() -> None:
            try:
                outcome.append(work(stop))
            except Exception as error:  # carried over to the request's task, whole
                failure.append(error)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_watch, request, stop)
            await anyio.to_thread.run_sync(run)
            tasks.cancel_scope.cancel()
        if failure:
            raise failure[0]
        return outcome[0]


CLIENT_WENT = "the client went away"


async def _watch(request: Request, stop: Stop) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
    stop.now(CLIENT_WENT)


def _query_string(request: Request) -> str:
    return str(request.scope["query_string"].decode("latin-1"))
