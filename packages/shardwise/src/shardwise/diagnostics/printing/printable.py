"""Anything as harmless lines of text: survives a broken ``__repr__`` and control characters.

Widths are terminal cells: wide East Asian characters take two, combining ones none.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

from .limits import DEFAULT

TAB = 4


def safe_repr(value: object, limit: int = DEFAULT.repr_characters) -> str:
    """``repr(value)`` on one line, shortened in the middle; a ``repr`` that raises is named instead."""
    try:
        text = repr(value)
    except Exception as error:
        text = f"<{type(value).__name__} whose repr raises {type(error).__name__}>"
    text = clean(" ".join(text.split()))
    if len(text) > limit:
        half = (limit - 3) // 2
        text = f"{text[: limit - 3 - half]}...{text[len(text) - half :]}"
    return text


def safe_str(value: object) -> str:
    """``str(value)`` with control characters made visible; a ``str`` that raises is named instead."""
    try:
        text = str(value)
    except Exception as error:
        text = f"<{type(value).__name__} whose str raises {type(error).__name__}>"
    return clean(text)


def clean(text: str) -> str:
    """Tabs expanded, everything unprintable replaced: no escape sequence of a program reaches the terminal."""
    shown, position = [], 0
    for character in text:
        if character == "\t":
            character = " " * (TAB - position % TAB)
        elif not character.isprintable():
            character = "\N{REPLACEMENT CHARACTER}"
        shown.append(character)
        position += cells(character)
    return "".join(shown)


def cells(text: str) -> int:
    """How many terminal columns ``text`` takes."""
    if text.isascii():
        return len(text)
    return sum(_cells(character) for character in text)


def _cells(character: str) -> int:
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def padded(text: str, width: int) -> str:
    """``text`` with blanks behind it, ``width`` terminal columns in all.

    Example:
        >>> padded("tp", 4), padded("张", 4)
        ('tp  ', '张  ')
    """
    return text + " " * (width - cells(text))


def columns(rows: Sequence[Sequence[str]]) -> list[str]:
    """The rows as lines, each column as wide as the widest of its cells. A row that has fewer cells than the first one
    says something of its own in the last of them, which makes no column wider.

    Example:
        >>> columns([("axis", "ranks"), ("张量", "0 1")])
        ['axis  ranks', '张量  0 1']
    """
    full = [row for row in rows if len(row) == len(rows[0])]
    widths = [max(map(cells, column)) for column in zip(*full, strict=True)]
    return ["  ".join(map(padded, row, widths)).rstrip() for row in rows]


def window(text: str, start: int, end: int) -> str:
    """The part of ``text`` in terminal columns ``start`` to ``end``; half of a wide character becomes a space."""
    shown, position = [], 0
    for character in text:
        width = _cells(character)
        inside = min(position + width, end) - max(position, start)
        if inside == width and position < end:
            shown.append(character)
        elif inside > 0:
            shown.append(" ")
        position += width
    return "".join(shown)
