"""The site's search, as a reader meets it in Chromium: over the network and in a folder that was copied to a laptop."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
CHROMIUM = Path("/usr/bin/chromium")
playwright = pytest.importorskip("playwright.sync_api", reason="needs playwright; `make report-browser` gets it")
pytest.importorskip("mkdocs.config", reason="the site is built where the extra docs is installed")
pytestmark = [
    pytest.mark.processes,
    pytest.mark.skipif(not CHROMIUM.exists(), reason="needs /usr/bin/chromium: apt-get install chromium"),
]
TIMEOUT_MS = 60_000


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two pages, built as the site is."""
    from mkdocs.commands.build import build
    from mkdocs.config import load_config

    folder = tmp_path_factory.mktemp("site")
    pages = folder / "docs"
    pages.mkdir()
    (pages / "index.md").write_text("# Start\n\nNothing is here.\n")
    (pages / "meshes.md").write_text("# Meshes\n\nA fiber of an axis: `reduce_scatter(x, axis)`.\n")
    for kept in ("stylesheets", "javascripts"):
        shutil.copytree(ROOT / "docs" / kept, pages / kept)
    config = load_config(
        str(ROOT / "mkdocs.yml"), docs_dir=str(pages), site_dir=str(folder / "out"), nav=None, hooks=[]
    )
    config.plugins.run_event("startup", command="build", dirty=False)
    build(config)
    return folder / "out"


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None: ...


@pytest.fixture(params=["http", "file"])
def address(request: pytest.FixtureRequest, site: Path) -> Iterator[str]:
    if request.param == "file":
        yield site.as_uri()
        return
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(site))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.mark.slow_but_one_in(2)
@pytest.mark.one_in(2)
@pytest.mark.parametrize("words", ["fiber", "reduce_scatter"])
def test_a_word_of_another_page_is_found_and_nothing_is_fetched_from_elsewhere(address: str, words: str) -> None:
    with playwright.sync_playwright() as started:
        chromium = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = chromium.new_page()
        fetched: list[str] = []
        page.on("request", lambda request: fetched.append(request.url))
        page.goto(f"{address}/index.html")
        page.get_by_role("textbox", name="Search").first.click()
        page.keyboard.type(words)
        found = page.locator(".md-search-result__link").first
        found.wait_for(timeout=TIMEOUT_MS)
        assert "meshes.html" in (found.get_attribute("href") or "")
        assert {url for url in fetched if not url.startswith((address, "data:", "blob:"))} == set()
        chromium.close()
