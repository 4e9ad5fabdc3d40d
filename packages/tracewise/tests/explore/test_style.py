"""The palette: texts can be read and series be told from the ground, in light and in dark."""

from __future__ import annotations

import re

import pytest

from tracewise.explore.server import STATIC

CSS = (STATIC / "explore.css").read_text()
LIGHT, DARK = (
    dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", block))
    for block in re.findall(r":root \{(.*?)\n\s*\}", CSS, re.DOTALL)
)
PALETTES = {"light": LIGHT, "dark": {**LIGHT, **DARK}}
TEXTS = [
    ("text", "page"), ("text", "panel"), ("text", "chip"), ("text", "faint"), ("soft", "page"), ("soft", "panel"),
    ("soft", "faint"), ("accent", "page"), ("accent", "panel"), ("accent-text", "accent"), ("warn", "mark"),
    ("bad", "page"),
]  # fmt: skip
SERIES = [f"s{number}" for number in range(10)] + ["rest"]


def luminance(colour):
    channels = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [value / 12.92 if value <= 0.03928 else ((value + 0.055) / 1.055) ** 2.4 for value in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one, other):
    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


def test_contrast_is_that_of_the_standard():
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)


@pytest.mark.parametrize("scheme", PALETTES)
@pytest.mark.parametrize(("text", "ground"), TEXTS)
def test_texts_can_be_read(scheme, text, ground):
    palette = PALETTES[scheme]
    assert contrast(palette[text], palette[ground]) >= 4.5


@pytest.mark.parametrize("scheme", PALETTES)
@pytest.mark.parametrize("series", SERIES)
def test_series_stand_out_from_the_ground(scheme, series):
    palette = PALETTES[scheme]
    assert contrast(palette[series], palette["panel"]) >= 3


def test_scripts_and_styles_ask_for_nothing_elsewhere():
    for path in STATIC.iterdir():
        assert not re.search(r"https?://|@import|url\(", path.read_text()), path.name


def test_the_front_end_stays_small():
    assert sum(len(path.read_text().splitlines()) for path in STATIC.iterdir()) <= 2_500
