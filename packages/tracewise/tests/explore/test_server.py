"""The server: who may talk to it, what a page says, and that a query ends with the one who asked."""

from __future__ import annotations

import asyncio
import json
import re
import threading
from html.parser import HTMLParser
from urllib.parse import quote, urlencode

import pytest
from starlette.testclient import TestClient

from tracewise.explore.engine import Engine, QueryError, QueryStopped, Stop
from tracewise.explore.security import Access
from tracewise.explore.server import CLIENT_WENT, Explorer
from tracewise.explore.sql import Sql

from .conftest import ODD_NAME, ROWS, make_database

TOKEN = "secret-of-this-test"
ACCESS = Access("127.0.0.1", 8000, TOKEN)
SLOW = Sql("SELECT count(*) FROM range(1000000000000) numbers(n) WHERE n % 7 = 3")


@pytest.fixture(scope="module")
def explorer(engine):
    return Explorer(engine, ACCESS)


@pytest.fixture
def client(explorer):
    return TestClient(explorer.app, base_url="http://127.0.0.1:8000", cookies={ACCESS.cookie: TOKEN})


@pytest.fixture
def stranger(explorer):
    return TestClient(explorer.app, base_url="http://127.0.0.1:8000", follow_redirects=False)


def test_the_token_opens_the_door_once(stranger):
    assert stranger.get("/").status_code == 403
    answer = stranger.get(f"/t/hostile?view=table&token={TOKEN}")
    assert (answer.status_code, answer.headers["location"]) == (303, "/t/hostile?view=table")
    cookie = answer.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    assert stranger.get("/t/hostile").status_code == 200


@pytest.mark.parametrize("token", ["", "secret-of-this-tesT", "é"])
def test_another_token_does_not(stranger, token):
    assert stranger.get("/", params={"token": token}).status_code == 403
    assert stranger.get("/", headers={"Cookie": f"{ACCESS.cookie}={quote(token)}"}).status_code == 403


def test_a_redirect_stays_here(stranger):
    assert stranger.get(f"http://127.0.0.1:8000//evil.example/?token={TOKEN}").headers["location"] == "/evil.example/"


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1", "127.0.0.1:8001", "evil.example:8000", ""])
def test_another_host_name_is_refused(client, host):
    assert client.get("/", headers={"Host": host}).status_code == 421


def test_a_change_from_another_page_is_refused(client):
    assert client.post("/t/hostile", headers={"Origin": "http://evil.example"}).status_code == 403
    assert client.post("/t/hostile").status_code == 403
    assert client.post("/t/hostile", headers={"Origin": "http://127.0.0.1:8000"}).status_code == 405


@pytest.mark.parametrize("path", ["/t/hostile", "/t/nope", "/nope", "/static/main.js", "/t/hostile/rows.json"])
def test_each_answer_carries_the_headers(client, path):
    headers = client.get(path).headers
    assert "script-src 'self'" in headers["content-security-policy"]
    assert "default-src 'none'" in headers["content-security-policy"]
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"
    assert "access-control-allow-origin" not in headers


@pytest.mark.parametrize(
    "path", ["/static/../server.py", "/static/%2e%2e/server.py", "/static//etc/passwd", "/t/..%2f..%2fx"]
)
def test_no_path_leads_to_a_file(client, path):
    answer = client.get(path)
    assert answer.status_code == 404
    assert "import" not in answer.text


class Collector(HTMLParser):
    """The tags, ids and texts of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))

    def handle_data(self, data):
        self.text.append(data)

    def values(self, name):
        return [
            fields.get("value")
            for tag, fields in self.tags
            if tag in ("input", "option") and fields.get("name") == name
        ]


def collect(html: str) -> Collector:
    collector = Collector()
    collector.feed(html)
    return collector


VIEWS = [
    "view=samples",
    "view=table&g=kind&m=count&m=p99(dur_us)&cmp=-10+min&from=50%25",
    "view=series&g=kind&shape=area",
    "view=series&cmp=previous&from=50%25&m=avg(dur_us)&m=rate",
    "view=distribution&x=dur_us&g=rank&scale=log",
    "view=table&m=sum(weight)",
]


@pytest.mark.parametrize("query", VIEWS)
def test_a_page_runs_nothing_of_the_data(client, query):
    """Scripts and styles come from our own files; no handler and no style stands in an attribute."""
    page = collect(client.get(f"/t/hostile?{query}").text)
    scripts = [fields for tag, fields in page.tags if tag == "script"]
    assert all(fields.get("src") == "/static/main.js" or fields.get("type") == "application/json" for fields in scripts)
    for tag, fields in page.tags:
        assert not any(name.startswith("on") or name == "style" for name in fields), (tag, fields)
        assert not str(fields.get("href", "")).lower().startswith("javascript:")
    assert not any("alert" in fields.get("src", "") for fields in scripts)


@pytest.mark.parametrize("query", VIEWS)
def test_a_page_names_its_controls_and_has_one_heading(client, query):
    page = collect(client.get(f"/t/hostile?{query}").text)
    labelled = {fields["for"] for tag, fields in page.tags if tag == "label" and "for" in fields}
    for tag, fields in page.tags:
        if tag in ("input", "select") and fields.get("type") not in ("hidden", "checkbox"):
            assert fields.get("id") in labelled, fields
    assert sum(tag == "h1" for tag, _ in page.tags) == 1
    ids = [fields["id"] for _, fields in page.tags if "id" in fields]
    assert len(ids) == len(set(ids))


@pytest.mark.parametrize("query", VIEWS)
def test_a_form_that_is_sent_unchanged_leads_to_the_same_address(client, query):
    """What works without a script: the server leaves the defaults out of what a form sends."""
    first = client.get(f"/t/hostile?{query}")
    page = collect(first.text)
    sent = [
        (fields["name"], fields.get("value") or "")
        for tag, fields in page.tags
        if tag == "input" and fields.get("name") and (fields.get("type") != "checkbox" or "checked" in fields)
    ]
    select = ""
    for tag, fields in page.tags:
        if tag == "select":
            select = fields["name"]
        elif tag == "option" and select and "selected" in fields:
            sent.append((select, fields["value"]))
    again = client.get(f"/t/hostile?{urlencode(sent)}")
    rows, same = (client.get(str(answer.url).replace("?", "/rows.json?", 1)).json() for answer in (first, again))
    assert same["rows"] == rows["rows"]


def test_a_broken_link_shows_what_is_left_and_marks_the_rest(client):
    answer = client.get("/t/hostile?view=table&f=bogus&f=nope:eq:1&f=rank:eq:1&m=p98(x)&colour=red&g=kind")
    assert answer.status_code == 200
    page = collect(answer.text)
    assert "bogus" in page.values("f")
    assert "nope:eq:1" in page.values("f")
    assert answer.text.count("Left out:") == 3
    assert "colour=red" in answer.text
    assert client.get(str(answer.url)).status_code == 200


def test_a_failing_statement_is_told_on_the_page(client):
    answer = client.get("/t/hostile?f=kind:matches:(")
    assert answer.status_code == 200
    assert "missing )" in answer.text


def test_rows_for_machines(client):
    found = client.get("/t/hostile/rows.json?view=table&g=is_ok&n=5").json()
    assert (found["version"], found["columns"]) == (1, ["is_ok", "count"])
    assert sum(row[1] for row in found["rows"]) == ROWS
    text = client.get("/t/hostile/rows.csv?view=table&g=is_ok&n=5").text
    assert text.splitlines()[0] == "is_ok,count"
    assert len(text.splitlines()) == 4


def test_json_for_scripts_cannot_leave_its_element(client):
    answer = client.get("/t/hostile?view=series&g=kind&n=20").text
    found = re.findall(r'<script type="application/json"[^>]*>(.*?)</script>', answer, re.DOTALL)
    assert any("alert(1)" in text for text in found)
    for text in found:
        assert "<" not in text
        json.loads(text)


def test_suggestions_follow_the_other_filters(client):
    found = client.get("/t/hostile/values", params={"column": "kind", "prefix": "ward", "f": "rank:eq:1"}).json()[
        "values"
    ]
    assert {one["value"] for one in found} == {"forward", "Forward", "backward"}
    everywhere = client.get("/t/hostile/values", params={"column": "kind", "prefix": "ward"}).json()["values"]
    assert sum(one["rows"] for one in found) < sum(one["rows"] for one in everywhere)
    assert client.get("/t/hostile/values", params={"column": "nope"}).status_code == 400


def test_a_row_in_full(client, rows):
    answer = client.get("/t/hostile/row/7")
    assert ODD_NAME.replace('"', "&#34;") in answer.text
    assert client.get("/t/hostile/row/999999").status_code == 404


def test_a_time_zone_moves_what_is_shown(client):
    assert "2026-11-22 12:" in client.get("/t/hostile?tz=Asia/Tokyo").text
    assert "no such time zone" in client.get("/t/hostile?tz=Mars/Olympus").text


def test_a_running_statement_is_stopped(engine):
    stop = Stop()
    threading.Timer(0.05, stop.now, ["enough"]).start()
    with engine.session(stop) as session, pytest.raises(QueryStopped, match="enough"):
        session.fetch(SLOW)


def test_a_statement_after_the_stop_does_not_begin(engine):
    stop = Stop()
    stop.now("enough")
    with engine.session(stop) as session, pytest.raises(QueryStopped, match="enough"):
        session.fetch(Sql("SELECT 1"))


def test_a_statement_has_a_time_limit(engine):
    limited = Engine(engine.database, timeout_s=0.05)
    with limited.session() as session, pytest.raises(QueryStopped, match=r"stopped after 0\.05 s"):
        session.fetch(SLOW)


def test_the_client_that_goes_away_takes_its_query_along(explorer):
    """Eight requests of endless queries; each ends because its client leaves, and one that stays is answered."""
    stopped = []

    def endless(stop):
        try:
            with explorer.engine.session(stop) as session:
                session.fetch(SLOW)
        except QueryStopped:
            stopped.append(stop.reason)
            raise

    class Leaving:
        async def receive(self):
            await asyncio.sleep(0.1)
            return {"type": "http.disconnect"}

    class Staying:
        async def receive(self):
            await asyncio.Event().wait()

    def quick(stop):
        with explorer.engine.session(stop) as session:
            return session.fetch(Sql("SELECT 42"))

    async def load():
        leaving = [explorer.interruptible(Leaving(), endless) for _ in range(8)]
        answers = await asyncio.gather(explorer.interruptible(Staying(), quick), *leaving, return_exceptions=True)
        assert answers[0] == [(42,)]
        assert all(isinstance(answer, QueryStopped) for answer in answers[1:])

    asyncio.run(load())
    assert stopped == [CLIENT_WENT] * 8


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT * FROM read_text('/etc/hostname')",
        "SELECT * FROM glob('/*')",
        "COPY (SELECT 1) TO 'x.csv'",
        "ATTACH 'x.db'",
        "INSTALL httpfs",
        "SET enable_external_access = true",
        "SET threads = 1",
        "CREATE TABLE x (a INT)",
        "DROP VIEW hostile",
        "INSERT INTO loaded.hostile SELECT * FROM loaded.hostile",
    ],
)
def test_the_locked_database_refuses_what_is_no_query(engine, statement):
    with engine.session() as session, pytest.raises(QueryError):
        session.fetch(Sql(statement))


@pytest.fixture
def sql_client(engine):
    app = Explorer(engine, ACCESS, takes_sql=True).app
    return TestClient(app, base_url="http://127.0.0.1:8000", cookies={ACCESS.cookie: TOKEN})


def test_raw_sql_is_off_unless_asked_for(client):
    assert client.get("/sql", params={"q": "SELECT 1"}).status_code == 404


def test_raw_sql_reads(sql_client):
    answer = sql_client.get("/sql", params={"q": "SELECT count(*) AS how_many, '<b>' AS mark FROM hostile"})
    assert f"<td>{ROWS}</td>" in answer.text
    assert "<td>&lt;b&gt;</td>" in answer.text


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("DROP VIEW hostile", "found DROP"),
        ("SELECT 1; SELECT 2", "found SELECT, SELECT"),
        ("SET threads = 1", "found SET"),
        ("--", "found none"),
        ("SELEC 1", "syntax error"),
        ("SELECT * FROM read_text('/etc/hostname')", "disabled by configuration"),
        ("SELECT nextval('none')", "does not exist"),
    ],
)
def test_raw_sql_does_nothing_else(sql_client, text, message):
    answer = sql_client.get("/sql", params={"q": text})
    assert message in answer.text


def test_a_database_leaves_no_file_behind():
    database = make_database()
    folder = database.folder
    assert folder.exists()
    database.close()
    assert not folder.exists()
