"""The explorer in a real browser: what its controls do, and that the data runs nothing."""

from __future__ import annotations

import re
import shutil
import socket
import threading
import time
from datetime import UTC
from urllib.parse import parse_qs, urlsplit

import pytest
import uvicorn

from tracewise.explore.engine import Engine
from tracewise.explore.security import Access
from tracewise.explore.server import Explorer

from .conftest import ROWS, make_database

playwright = pytest.importorskip("playwright.sync_api", reason="the package playwright is not installed")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
FLAGS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update",
]  # fmt: skip
pytestmark = [
    pytest.mark.slow,
    pytest.mark.processes,
    pytest.mark.xdist_group("browser"),
    pytest.mark.skipif(CHROMIUM is None, reason="no chromium on this machine; Debian has it as the package chromium"),
]
TOKEN = "token-of-the-browser-test"
TABLE = "/t/hostile"


@pytest.fixture(scope="module")
def address():
    """A server over the hostile table."""
    with make_database() as database:
        listener = socket.create_server(("127.0.0.1", 0))
        port = listener.getsockname()[1]
        explorer = Explorer(Engine(database), Access("127.0.0.1", port, TOKEN), log_zone=UTC)
        server = uvicorn.Server(uvicorn.Config(explorer.app, log_level="error"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{port}"
        server.should_exit = True
        thread.join(10)


@pytest.fixture(scope="module")
def launch(tmp_path_factory):
    """A function that starts a browser with an empty profile."""
    with playwright.sync_playwright() as engine:

        def start(**options):
            profile = str(tmp_path_factory.mktemp("profile"))
            context = engine.chromium.launch_persistent_context(
                profile, executable_path=CHROMIUM, args=FLAGS, viewport={"width": 1280, "height": 900}, **options
            )
            context.set_default_timeout(10_000)
            return context

        yield start


@pytest.fixture(scope="module")
def context(launch):
    context = launch()
    yield context
    context.close()


@pytest.fixture
def page(context, address):
    """A page that fails the test if anything was logged, asked for elsewhere, or opened."""
    page = context.new_page()
    troubles: list[str] = []
    page.on("console", lambda message: troubles.append(message.text))
    page.on("pageerror", lambda error: troubles.append(str(error)))
    page.on("dialog", lambda dialog: troubles.append(f"dialog {dialog.message}"))
    page.on(
        "request", lambda request: request.url.startswith((address, "data:", "blob:")) or troubles.append(request.url)
    )
    page.goto(f"{address}/?token={TOKEN}")
    yield page
    page.close()
    assert troubles == []


def settle(page):
    """Wait until the last query is shown; not by a function, whose polling the pages' own policy forbids."""
    page.wait_for_selector("body:not(.busy)")


def wait_for(page, part):
    """Wait until the address holds a part."""
    page.wait_for_url(lambda url: part in url)


def shown(page):
    """The texts of the result's table."""
    return page.locator("#result table tbody tr").all_inner_texts()


def parameters(page):
    return parse_qs(urlsplit(page.url).query)


def test_the_first_link_is_cleaned_of_its_token(page):
    assert "token" not in page.url
    assert page.locator("table.samples tbody tr").count() == 100


CHANGES = [
    ("samples", {"#n": "7"}, "n=7"),
    ("samples", {"#from": "50%"}, "from=50%25"),
    ("table", {"#g0": "rank"}, "g=rank"),
    ("table", {"#m0": "p99(dur_us)", "#g0": "rank"}, "m=p99(dur_us)"),
    ("table", {"#g0": "kind", "#other": "0", "#n": "3"}, "other=0"),
    ("table", {"#cmp": "-10 min", "#from": "50%"}, "cmp=-10+min"),
    ("series", {"#res": "10 min"}, "res=10+min"),
    ("series", {"#shape": "bars", "#g0": "rank"}, "shape=bars"),
    ("series", {"#fill": "blank"}, "fill=blank"),
    ("series", {"#tz": "Asia/Tokyo"}, "tz=Asia/Tokyo"),
    ("distribution", {"#x": "weight"}, "x=weight"),
    ("distribution", {"#scale": "log"}, "scale=log"),
    ("table", {"#d0": "ms:dur_us / 1000"}, "d=ms:dur_us+/+1000"),
]


@pytest.mark.parametrize(("view", "changes", "part"), CHANGES, ids=[change[2] for change in CHANGES])
def test_a_control_is_in_the_address_and_the_address_brings_it_back(page, address, view, changes, part):
    page.goto(f"{address}{TABLE}?v=1&view={view}")
    for selector, value in changes.items():
        control = page.locator(selector)
        control.select_option(value) if control.evaluate("one => one.tagName") == "SELECT" else control.fill(value)
    page.keyboard.press("Control+Enter")
    wait_for(page, part)
    settle(page)
    before, controls = page.locator("#result").inner_text(), control_values(page)
    page.reload()
    assert without_seconds(page.locator("#result").inner_text()) == without_seconds(before)
    assert control_values(page) == controls


def control_values(page):
    return page.evaluate("[...new FormData(document.getElementById('controls'))].map(pair => pair.map(String))")


def without_seconds(text):
    return re.sub(r"statements, [^,]*,", "", text)


def test_back_and_forward(page, address):
    page.goto(f"{address}{TABLE}?v=1")
    page.click("nav.tabs >> text=Table")
    wait_for(page, "view=table")
    page.click("nav.tabs >> text=Time series")
    wait_for(page, "view=series")
    page.go_back()
    page.wait_for_selector(".groups")
    assert "view=table" in page.url
    page.go_forward()
    page.wait_for_selector(".chart")
    assert "view=series" in page.url


def test_a_filter_is_made_of_chips(page, address):
    page.goto(f"{address}{TABLE}?v=1")
    page.select_option("#f0-column", "kind")
    page.fill("#f0-value", "for")
    playwright.expect(page.locator("#f0-list li")).to_have_count(2)
    assert set(page.locator("#f0-list li span").all_inner_texts()) == {"forward", "Forward"}
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    page.keyboard.press("Control+Enter")
    wait_for(page, "f=kind:eq:")
    settle(page)
    assert page.locator(".scope .chip").count() == 1
    page.click(".scope .chip a")
    page.wait_for_url(lambda url: "f=" not in url)


def test_a_pasted_list_becomes_chips(page, address):
    page.goto(f"{address}{TABLE}?v=1&view=table&g=kind")
    page.select_option("#f0-column", "kind")
    page.evaluate(
        """() => {
            const transfer = new DataTransfer();
            transfer.setData("text", 'a:b\\n"a,b"\\tO\\'Brien, backward');
            document.getElementById("f0-value").dispatchEvent(
                new ClipboardEvent("paste", { clipboardData: transfer, bubbles: true, cancelable: true }));
        }"""
    )
    assert page.locator("#filters .chip > span").all_inner_texts() == ["a:b", "a,b", "O'Brien", "backward"]
    page.keyboard.press("Control+Enter")
    wait_for(page, "f=kind:eq:a%3Ab,a%2Cb,O%27Brien,backward")
    settle(page)
    keys = {row.split("\t")[0] for row in shown(page)}
    assert keys == {"a:b", "a,b", "O'Brien", "backward"}


def test_a_cell_leads_on(page, address):
    page.goto(f"{address}{TABLE}?v=1&f=kind:eq!:backward")
    page.click("table.samples tbody tr:first-child td:nth-child(4)")
    page.click(".menu >> text=Not this")
    wait_for(page, "f=kind:ne!:backward")
    settle(page)
    assert "No rows" in page.locator("#result").inner_text()
    page.go_back()
    page.wait_for_selector("table.samples")
    page.click("table.samples tbody tr:first-child td:nth-child(4)")
    page.click(".menu >> text=Group by kind")
    page.wait_for_selector("table.groups")
    assert parameters(page)["g"] == ["kind"]


def test_a_group_leads_to_its_rows(page, address):
    page.goto(f"{address}{TABLE}?v=1&view=table&g=rank&m=count")
    row = page.locator("table.groups tbody tr").first
    name, count = row.inner_text().split("\t")[:2]
    row.locator("a").click()
    page.wait_for_selector("table.samples")
    assert f"{page.locator('.below').first.inner_text().split()[0]}" == str(min(100, int(count)))
    assert parameters(page)["f"] in ([f"rank:eq:{name}"], ["rank:null"])


def test_a_drag_zooms_and_a_legend_hides(page, address):
    page.goto(f"{address}{TABLE}?v=1&view=series&g=rank")
    box = page.locator(".canvas").bounding_box()
    page.mouse.move(box["x"] + box["width"] * 0.25, box["y"] + 50)
    assert page.locator(".readout").is_visible()
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.5, box["y"] + 60, steps=4)
    page.mouse.up()
    wait_for(page, "from=2026-11-22+03:1")
    settle(page)
    page.locator("table.legend tbody button").first.click()
    assert page.locator("path.hidden-line").count() == 1
    assert page.locator("table.legend tbody button").first.get_attribute("aria-pressed") == "false"


def test_a_comparison_is_drawn_beside(page, address):
    page.goto(f"{address}{TABLE}?v=1&view=series&from=50%25&cmp=previous")
    assert page.locator("path.before").count() == 1
    page.goto(f"{address}{TABLE}?v=1&view=table&g=rank&from=50%25&cmp=previous")
    assert "change" in page.locator("table.groups thead").inner_text()


def test_selected_numbers_are_summed_and_a_table_is_copied(page, address, context):
    context.grant_permissions(["clipboard-read", "clipboard-write"], origin=address)
    page.goto(f"{address}{TABLE}?v=1&view=table&g=is_ok&m=count")
    cells = page.locator("table.groups tbody td.number")
    numbers = [int(text.replace(",", "")) for text in cells.all_inner_texts()]
    assert sum(numbers) == ROWS
    cells.nth(0).click()
    cells.nth(1).click()
    assert f"sum {numbers[0] + numbers[1]}" in page.locator("#selection").inner_text().replace(",", "")
    page.click("text=Copy as Markdown")
    page.wait_for_selector("text=Copied")
    assert "| is_ok | count |" in page.evaluate("navigator.clipboard.readText()")


def test_everything_by_keyboard(page, address):
    page.goto(f"{address}{TABLE}?v=1")
    page.keyboard.press("2")
    page.wait_for_selector("table.groups")
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.id") == "f0-column"
    page.keyboard.type("rank")
    page.keyboard.press("Tab")
    page.locator("#f0-value").focus()
    page.keyboard.type("1,2")
    page.keyboard.press("Enter")
    page.keyboard.press("Enter")
    wait_for(page, "f=rank:eq:1,2")
    settle(page)
    page.evaluate("document.activeElement.blur()")
    page.keyboard.press("?")
    assert page.locator("dialog#keys").is_visible()
    page.keyboard.press("Escape")
    page.wait_for_selector("dialog#keys", state="hidden")
    page.locator("#result").focus()
    page.keyboard.press("1")
    page.wait_for_selector("table.samples")
    page.locator("table.samples td[tabindex='0']").focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.textContent") == "Only this"
    page.keyboard.press("Escape")
    assert page.locator(".menu").count() == 0


def test_a_query_is_stopped_by_the_next_one(page, address):
    """The first request is held; the second takes its place on the page."""
    page.goto(f"{address}{TABLE}?v=1")
    page.route("**view=table**", lambda route: (time.sleep(0.5), route.continue_()))
    click = "document.querySelector('.tabs a[data-view=table]').click()"
    assert page.evaluate(f"() => {{ {click}; return document.getElementById('stop').hidden; }}") is False
    page.evaluate("document.querySelector('.tabs a[data-view=distribution]').click()")
    page.wait_for_selector("dl.facts-line")
    settle(page)
    assert page.locator(".tabs a[aria-current]").inner_text() == "Distribution"
    page.unroute("**view=table**")


@pytest.mark.parametrize("view", ["samples", "table&g=kind", "series&g=kind", "distribution&g=kind&x=dur_us"])
def test_a_narrow_page_does_not_scroll_sideways(page, address, view):
    page.set_viewport_size({"width": 400, "height": 800})
    page.goto(f"{address}{TABLE}?v=1&view={view}&f=kind:contains:a&f=bogus")
    assert page.evaluate("document.documentElement.scrollWidth") <= 400
    page.click("#controls .fold > summary")
    assert page.evaluate("document.documentElement.scrollWidth") <= 400


def test_without_a_script_the_form_and_the_links_work(address, launch):
    context = launch(java_script_enabled=False)
    page = context.new_page()
    page.goto(f"{address}/?token={TOKEN}")
    page.fill("#f0", 'kind:eq:"a,b"')
    page.click("#run")
    wait_for(page, "f=kind:eq:a%2Cb")
    page.click("nav.tabs >> text=Table")
    wait_for(page, "view=table")
    page.select_option("#g0", "kind")
    page.click("#run")
    wait_for(page, "g=kind")
    assert shown(page)[0].startswith("a,b")
    context.close()
