"""The site's pages of the zoo have everything that a program says of itself, and the type of its lines."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from shardwise.zoo.catalogue import entry, names
from shardwise_devtools import zoo_pages

pytestmark = pytest.mark.xdist_group("zoo pages")


@pytest.fixture(scope="module")
def pages() -> dict[str, str]:
    return zoo_pages.pages()


@pytest.mark.slow_but_one_in(4)
@pytest.mark.parametrize("name", names())
def test_a_page_has_the_words_the_numbers_the_code_and_its_types(pages: dict[str, str], name: str) -> None:
    found, page = entry(name), pages[f"zoo/{name}.md"]
    assert all(found.parts[part][1:] in page for part in ("Mesh", "Choose", "Breaks", "Memory", "State"))
    assert all(f"| `{formula}` |" in page for formula in found.traffic_formulas().values())
    assert f"```python\n{found.code}\n```" in page
    types = page.partition("## The type of every line")[2]
    assert f"{name}.py\n" in types
    assert types.count(": f64[") >= 2
    assert types.count('<span class="type"># ') == types.count("</span>\n") + types.count("\n</span>")


def test_a_page_begins_with_a_capital_unless_an_axis_does(pages: dict[str, str]) -> None:
    assert "\n\nWhen one layer is too large" in pages["zoo/tensor_parallel.md"]
    assert "\n\ntp innermost: " in pages["zoo/tensor_parallel.md"]


def test_every_page_has_a_drawing_that_it_shows(pages: dict[str, str]) -> None:
    drawn = zoo_pages.pictures()
    assert {f"zoo/{name}{form}.svg" for name in names() for form in ("", "-narrow")} == set(drawn)
    for file, svg in drawn.items():
        if not file.endswith("-narrow.svg"):  # which the site puts beside it
            assert f"({file.removeprefix('zoo/')})" in pages[file.replace(".svg", ".md")]
        assert ElementTree.fromstring(svg).tag.endswith("svg")


def test_the_guide_links_every_page() -> None:
    assert all(f"[{name}](../zoo/{name}.md)" in zoo_pages.links("../zoo") for name in names())
