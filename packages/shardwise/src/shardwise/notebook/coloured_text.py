"""Coloured text as HTML for pages of which nobody knows whether they are light or dark."""

from __future__ import annotations

import html
from collections.abc import Iterable

from shardwise.diagnostics.printing.paint import Line

_RED, _BLUE = "#de3d3d", "#2779d8"
COLOURS = {
    "error": _RED,
    "primary": _RED,
    "warning": "#b06c00",
    "help": _BLUE,
    "secondary": _BLUE,
    "good": "#2f8a3a",
    "gutter": "#6b7f99",
}
"""By the meaning of a piece of text; each is as far from white as from a dark page."""
_FIXED = "font-family:ui-monospace,'DejaVu Sans Mono',Menlo,Consolas,monospace;font-size:13px;line-height:1.3"
"""Said here, because JupyterLab shows the text of a ``pre`` in an output like prose."""


def block(lines: Iterable[Line]) -> str:
    """Lines below each other, each character as wide as the other; one that is too long is scrolled."""
    text = "\n".join("".join(span(style, text) for style, text in line) for line in lines)
    return f'<pre style="{_FIXED};white-space:pre;overflow-x:auto">{text}</pre>'


def span(style: str, text: str) -> str:
    """One piece of text, escaped."""
    colour = f"color:{COLOURS[style]};" if style in COLOURS else ""
    weight = "font-weight:bold;" if style in ("error", "warning", "strong") else ""
    escaped = html.escape(text)
    return f"<span style='{colour}{weight}'>{escaped}</span>" if colour or weight else escaped
