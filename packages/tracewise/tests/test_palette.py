"""Colours can be read: every text colour of the style sheets has a contrast of 4.5 on the grounds it stands on."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import tracewise

ASSETS = Path(tracewise.__file__).parent / "report" / "assets"
NEEDED = 4.5
VARIABLE = re.compile(r"--([\w-]+): (#[0-9a-f]{3,6})")
PAIRS = {
    "report.css": [
        *((text, ground) for text in ("ink", "quiet", "link") for ground in ("ground", "raised")),
        *((text, "good-ground") for text in ("good", "ink", "link")),
        *((text, "warning-ground") for text in ("warning", "ink", "link")),
        *((text, "error-ground") for text in ("error", "ink")),
        ("note", "note-ground"),
        ("ink", "note-ground"),
        ("good", "raised"),
        ("ground", "link"),
    ],
    "text.css": [(text, "ground") for text in ("ink", "quiet", "link", "comment", "string", "keyword", "number")]
    + [("ink", "mark")],
}


def palettes(name: str) -> list[dict[str, str]]:
    """The colours for light and for dark, by variable."""
    light, dark = (ASSETS / name).read_text().split("prefers-color-scheme: dark", 1)
    of_light = dict(VARIABLE.findall(light))
    return [of_light, {**of_light, **dict(VARIABLE.findall(dark))}]


def luminance(colour: str) -> float:
    """Relative luminance as WCAG 2.2 defines it."""
    digits = colour.lstrip("#")
    if len(digits) == 3:
        digits = "".join(digit * 2 for digit in digits)
    channels = [int(digits[at : at + 2], 16) / 255 for at in (0, 2, 4)]
    linear = [value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4 for value in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, two: str) -> float:
    low, high = sorted((luminance(one), luminance(two)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
@pytest.mark.parametrize(("sheet", "text", "ground"), [(s, *pair) for s, pairs in PAIRS.items() for pair in pairs])
def test_text_can_be_read_on_its_ground(sheet, text, ground, scheme):
    palette = palettes(sheet)[scheme]
    assert contrast(palette[text], palette[ground]) >= NEEDED


def test_contrast_is_that_of_wcag():
    assert contrast("#000", "#ffffff") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") < NEEDED < contrast("#767676", "#fff")
