"""The report in a real browser: attacks do nothing, and search, filters, tree, timeline and keys work."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from shardwise.report.page import NumbersSection, report_page

from .pages import ATTACKS, hostile, large

CHROMIUM = Path("/usr/bin/chromium")
playwright = pytest.importorskip("playwright.sync_api", reason="needs playwright; `make report-browser` gets it")
pytestmark = [
    pytest.mark.processes,
    pytest.mark.xdist_group("browser"),
    pytest.mark.skipif(not CHROMIUM.exists(), reason="needs /usr/bin/chromium: apt-get install chromium"),
]
FLAGS = """--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking
--disable-component-update --disable-sync""".split()  # noqa: SIM905


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as started:
        chromium = started.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield chromium
        chromium.close()


@pytest.fixture
def opened(browser: Any, tmp_path: Path) -> Iterator[Any]:
    """Opens a page; whatever it complains of, asks for or fetches fails the test."""
    complaints: list[str] = []
    contexts = []

    def open_page(text: str, **options: Any) -> Any:
        file = tmp_path / "report.html"
        file.write_text(text, encoding="utf-8")
        context = browser.new_context(**{"viewport": {"width": 1400, "height": 900}, **options})
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("dialog", lambda dialog: (complaints.append(dialog.message), dialog.dismiss()))
        page.on(
            "request",
            lambda request: None if request.url.startswith(("file://", "data:")) else complaints.append(request.url),
        )
        page.goto(file.as_uri())
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert complaints == []


@pytest.mark.slow_but_one_in(4)
@pytest.mark.parametrize("attack", ATTACKS, ids=range(len(ATTACKS)))
def test_an_attacking_run_runs_nothing(opened, attack):
    page = opened(report_page(hostile(attack).result, root="/project", numbers=NumbersSection(attack, "error")))
    page.locator("#search").fill(attack[:10])
    page.locator("#found-count").hover()
    assert page.evaluate("window.hurt") is None
    assert page.locator("script").count() == 1


@pytest.mark.slow_but_one_in(4)
@pytest.mark.parametrize("width", [1400, 400])
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("attack", ["calm", "n" * 3000], ids=["calm", "long"])
def test_the_page_never_scrolls_sideways(opened, width, scheme, attack):
    page = opened(
        report_page(hostile(attack).result, root="/project"),
        viewport={"width": width, "height": 800},
        color_scheme=scheme,
    )
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_on_a_phone_tables_and_meshes_are_read_without_scrolling_and_cells_say_what_they_are(opened):
    page = opened(report_page(hostile("calm").result, root="/project"), viewport={"width": 390, "height": 800})
    regions = page.locator(".scroll")
    assert regions.count() > 1
    assert regions.evaluate_all("all => all.filter(one => one.scrollWidth > one.clientWidth + 1).length") == 0
    said = page.locator("#by-line tbody td").first.evaluate("cell => getComputedStyle(cell, '::before').content")
    assert said.strip('" ') == "where"


@pytest.mark.parametrize(("width", "kind"), [(1400, "wide"), (390, "narrow")])
def test_a_finding_is_read_without_scrolling_sideways(opened, width, kind):
    said = NumbersSection("1 value differs", "error", text=(((("", "the loss differs, " * 20),)),))
    page = opened(
        report_page(hostile("calm").result, root="/project", numbers=said), viewport={"width": width, "height": 800}
    )
    shown = page.locator("pre:visible")
    assert shown.count() == page.locator(f"pre.{kind}").count() > 1
    for pre in shown.all():
        overflows = pre.evaluate("pre => pre.scrollWidth > pre.clientWidth + 1")
        assert not overflows or (kind == "wide" and "the loss differs" in pre.inner_text())
    assert "shardwise explain" in shown.first.inner_text()


def test_search_finds_a_line_and_leads_there(opened):
    page = opened(report_page(large(4)))
    page.keyboard.press("/")
    page.keyboard.type("line_19950 dp:")
    assert page.locator("#found-count").inner_text() == "1 found"
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    page.wait_for_function("location.hash === '#f0-19950'")
    assert page.locator("#f0-19950").is_visible()
    assert not page.locator("#found").is_visible()


def test_search_opens_the_module_that_it_leads_to(opened):
    page = opened(report_page(large(4)))
    mlp = page.locator("#modules summary", has_text="mlp").first
    assert not mlp.is_visible()
    page.locator("#search").fill("module mlp")
    page.locator("#search").fill("mlp Mlp")
    page.locator("#found a").first.click()
    page.wait_for_function("location.hash !== ''")
    assert mlp.is_visible()


def test_lines_are_filtered_by_button_and_key(opened):
    page = opened(report_page(hostile("calm").result, root="/project"))
    rows = page.locator(".source tbody tr:visible")
    assert rows.count() == 21
    page.get_by_role("button", name="Lines with findings").click()
    assert rows.count() == 2
    page.locator("h1").click()
    page.keyboard.press("t")
    assert rows.count() == 21
    assert page.get_by_role("button", name="All lines").get_attribute("aria-pressed") == "true"


def test_modules_are_filtered_with_those_around_them(opened):
    page = opened(report_page(large(4)))
    page.get_by_label("Filter").fill("attention")
    assert page.locator("#module-count").inner_text() == "1 of 5"
    assert page.locator("#modules summary", has_text="attention").is_visible()
    assert not page.locator("#modules summary", has_text="mlp").is_visible()


def test_the_timeline_is_walked_with_keys(opened):
    page = opened(report_page(large(4)))
    page.locator("#timeline").focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    assert page.locator("#chosen").inner_text().startswith("2 of 32: all_reduce(sum) over tp: 1 KiB, 10 us")
    page.keyboard.press("End")
    assert page.locator("#chosen").inner_text().startswith("32 of 32")
    assert page.locator("rect.chosen").count() == 1


def test_keys_go_to_findings_and_are_listed(opened):
    page = opened(report_page(hostile("calm").result, root="/project"))
    page.keyboard.press("n")
    assert page.evaluate("document.activeElement.id") == "finding-1"
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    page.keyboard.press("?")
    assert page.get_by_role("dialog", name="Keys").is_visible()


def test_a_place_leads_to_its_line(opened):
    page = opened(report_page(hostile("calm").result, root="/project"))
    page.get_by_role("button", name="Lines with findings").click()
    page.locator("#rests a.place").first.click()
    assert page.locator("#f0-3").is_visible()
    assert page.evaluate("document.querySelector(':target').id") == "f0-3"


def test_the_mesh_is_a_picture_with_words(opened):
    page = opened(report_page(large(2)))
    image = page.locator("#mesh img")
    assert image.evaluate("one => one.naturalWidth") > 100
    assert "ranks" in image.get_attribute("alt")


def test_escape_leaves_the_search_field_so_that_keys_are_commands_again(opened):
    page = opened(report_page(hostile("calm").result, root="/project"))
    page.keyboard.press("/")
    page.keyboard.type("calm")
    page.keyboard.press("Escape")
    page.keyboard.press("?")
    assert page.locator("#keys").is_visible()
