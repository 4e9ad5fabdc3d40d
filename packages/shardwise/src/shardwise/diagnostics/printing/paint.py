"""Coloured text as (style, text) pieces; styles are named by meaning and looked up once, at the end."""

from __future__ import annotations

from collections.abc import Iterable

Line = list[tuple[str, str]]
"""One line as pieces; the style is a key of ``STYLES`` or empty."""

STYLES = {
    "error": "bold red",
    "warning": "bold yellow",
    "good": "bold green",
    "strong": "bold",
    "gutter": "blue",
    "primary": "bold red",
    "secondary": "bold blue",
    "help": "bold cyan",
    "quiet": "dim",
    "tone 0": "black on cyan",
    "tone 1": "black on yellow",
    "tone 2": "black on green",
    "tone 3": "black on bright_magenta",
    "tone 4": "bright_white on blue",
    "tone 5": "bright_white on red",
}


def plain(lines: Iterable[Line]) -> str:
    """The text alone; no line ends in a space."""
    return "\n".join("".join(text for _, text in line).rstrip() for line in lines)


def coloured(lines: Iterable[Line]) -> str:
    """The text with ANSI escapes in the sixteen colours that every terminal has."""
    from rich.color import ColorSystem
    from rich.style import Style

    looks = {name: Style.parse(look) for name, look in STYLES.items()}
    return "\n".join(
        "".join(looks[style].render(text, color_system=ColorSystem.STANDARD) if style else text for style, text in line)
        for line in lines
    )


def paint(lines: Iterable[Line], *, color: bool) -> str:
    return coloured(lines) if color else plain(lines)
