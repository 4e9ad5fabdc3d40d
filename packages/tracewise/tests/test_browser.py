"""The report in a real browser: attacks do nothing, and search, tables, texts, comparison and timeline work."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from .golden import golden
from .hostile import attacked
from .reports import rank_logs, report_of

CHROMIUM = Path("/usr/bin/chromium")
playwright = pytest.importorskip("playwright.sync_api", reason="needs playwright; `make tracewise-browser` gets it")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.processes,
    pytest.mark.xdist_group("browser"),
    pytest.mark.skipif(not CHROMIUM.exists(), reason="needs /usr/bin/chromium; `make tracewise-browser` says how"),
]
FLAGS = """--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking
--disable-component-update --disable-sync""".split()  # noqa: SIM905


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as started:
        chromium = started.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield chromium
        chromium.close()


class Watched:
    """A page whose complaints, dialogs and requests to the outside are collected."""

    def __init__(self, browser: Any, **options: Any) -> None:
        self.context = browser.new_context(**options)
        self.page = self.context.new_page()
        self.complaints: list[str] = []
        self.page.on("console", lambda message: self.complaints.append(message.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("dialog", lambda dialog: (self.complaints.append(dialog.message), dialog.dismiss()))
        self.page.on("request", lambda request: self._request(request.url))

    def _request(self, url: str) -> None:
        if not url.startswith("file://"):
            self.complaints.append(url)

    def open(self, path: Path, fragment: str = "") -> Any:
        self.page.goto(path.as_uri() + fragment)
        return self.page


@pytest.fixture
def watched(browser: Any) -> Iterator[Watched]:
    found = Watched(browser, viewport={"width": 1400, "height": 900})
    yield found
    found.context.close()
    assert found.complaints == []


@pytest.fixture(scope="module")
def broken(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return report_of(golden("basic-break"), tmp_path_factory.mktemp("break"))[0]


@pytest.mark.parametrize("name", ["basic-fail", "basic-recompile", "export-draft"])
@pytest.mark.parametrize("with_names", [False, True], ids=["known", "unknown"])
def test_an_attacking_log_runs_nothing(tmp_path, watched, name, with_names):
    out, _ = report_of(attacked(golden(name), with_names=with_names), tmp_path)
    for path in [*sorted(out.glob("*.html")), *sorted((out / "c").rglob("*.html"))[:4], *sorted(out.glob("p/*/*"))[:8]]:
        page = watched.open(path)
        assert page.evaluate("window.hurt") is None
        for text in page.frames:
            assert text.evaluate("window.hurt") is None


@pytest.mark.parametrize("width", [1400, 400])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_no_page_scrolls_sideways(browser, tmp_path, width, scheme):
    out, _ = report_of(rank_logs("shape"), tmp_path)
    watched = Watched(browser, viewport={"width": width, "height": 800}, color_scheme=scheme)
    for path in [*out.glob("*.html"), *sorted((out / "c").rglob("*.html"))[:3]]:
        page = watched.open(path)
        assert page.evaluate("document.documentElement.scrollWidth") <= width, path.name
    watched.context.close()
    assert watched.complaints == []


def test_the_overview_shows_the_numbers_of_the_data(watched, broken):
    told = json.loads((broken / "data/run.json").read_bytes())
    text = watched.open(broken / "index.html").locator(".verdict").inner_text()
    assert f"{told['functions']} functions compiled {told['compilations']} times" in text
    assert f"{len(told['problems'])} problems" in text


def test_search_finds_and_leads_there(watched, broken):
    page = watched.open(broken / "index.html")
    page.keyboard.press("/")
    page.keyboard.type("resume 29")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    page.wait_for_url("**/c/**")
    assert "after the break at line 29" in page.locator("h1").inner_text()


def test_a_table_sorts_filters_and_tells(watched, broken):
    page = watched.open(broken / "frames.html")
    table = page.locator("#compilation-table")
    assert table.locator("tbody tr").count() == 3
    page = watched.open(broken / "timeline.html")
    table = page.locator("#span-table")
    table.get_by_role("button", name="times").click()
    assert table.locator("th[aria-sort=descending]").inner_text() == "times"
    table.get_by_label("Filter rows").fill("async_compile")
    assert "of 1" in table.locator("[aria-live]").inner_text()


def test_a_chosen_text_has_numbered_coloured_lines(watched, broken):
    unit = sorted((broken / "c").rglob("-_0_0_0.html"))[0]
    page = watched.open(unit)
    page.get_by_role("link", name="dynamo_output_graph").click()
    frame = page.frame(name="text")
    frame.wait_for_selector("#L2")
    assert frame.locator("#L1").inner_text().strip() == "class GraphModule(torch.nn.Module):"
    assert frame.locator("#L1 .k").inner_text() == "class"
    frame.get_by_role("button", name="Wrap lines").click()
    assert frame.locator("pre.wrap").count() == 1


def test_two_texts_are_compared(watched, broken):
    page = watched.open(sorted((broken / "c").rglob("-_0_0_0.html"))[0])
    page.get_by_role("button", name="Compare two texts").click()
    page.wait_for_selector(".comparison td")
    assert "The texts are equal." in page.locator(".comparison").inner_text()
    options = page.get_by_label("second text").locator("option").all_inner_texts()
    other = next(n for n, text in enumerate(options) if text.startswith("inductor_output_code"))
    page.get_by_label("second text").select_option(str(other))
    page.wait_for_selector(".comparison td.added")
    assert "lines differ" in page.locator(".comparison").inner_text()


def test_the_timeline_zooms_and_tells_by_mouse_and_keys(watched, broken):
    page = watched.open(broken / "timeline.html")
    chart = page.locator("#chart")
    before = chart.screenshot()
    chart.focus()
    page.keyboard.press("w")
    page.keyboard.press("w")
    page.wait_for_timeout(100)
    assert chart.screenshot() != before
    page.keyboard.press("0")
    chart.click(position={"x": 300, "y": 30})
    assert page.locator("#span-details").inner_text().startswith("dynamo: ")
    page.locator("#span-details a").click()
    page.wait_for_url("**/c/**")


def test_keys_are_listed(watched, broken):
    page = watched.open(broken / "index.html")
    page.keyboard.press("?")
    assert page.get_by_role("dialog", name="Keys").is_visible()


def test_a_line_marks_its_partners(tmp_path, watched):
    out, _ = report_of(golden("provenance"), tmp_path)
    (path,) = (out / "c").rglob("*-provenance-1.html")
    page = watched.open(path)
    page.locator("[data-column=post] li", has_text="relu:").first.click()
    assert "cpp_fused_relu_0(" in page.locator("[data-column=code] .partner").inner_text()
    assert "input_2" in page.locator("[data-column=pre] .partner").inner_text()
    page.keyboard.press("ArrowUp")
    assert page.locator("[data-column=post] .chosen").count() == 1
