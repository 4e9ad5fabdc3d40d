"""The figures of README and docs are what the command draws, each is used, and each has its text alternative."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest

from shardwise_devtools.figures import FIGURES, FOLDER, figure

ROOT = FOLDER.parents[1]
PAGES = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
IMAGE = re.compile(r"!\[([^\]]*)\]\([^)]*figures/([\w-]+)\.svg\)")
USED = {(name, told) for page in PAGES for told, name in IMAGE.findall(page.read_text())}


@pytest.mark.parametrize("name", FIGURES)
def test_a_figure_is_what_is_drawn(name):
    assert (FOLDER / f"{name}.svg").read_text("utf-8") == figure(name), "run: make figures"


def test_there_is_no_other_figure_and_each_is_used():
    assert {file.stem for file in FOLDER.iterdir()} == set(FIGURES) == {name for name, _ in USED}


def test_every_figure_has_words_beside_it_and_inside():
    assert all(len(told.split()) > 3 for _, told in USED)
    for name in FIGURES:
        svg = ElementTree.parse(FOLDER / f"{name}.svg").getroot()
        assert svg.find("{http://www.w3.org/2000/svg}desc").text
