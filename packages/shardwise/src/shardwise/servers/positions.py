"""Where things are, as editors count: lines from 0, columns in units of UTF-16.

x = "ä𝄞"; relu(h)       relu is at column 13 of UTF-8, at 10 in characters, and at 11 for an editor
"""

from __future__ import annotations

from lsprotocol import types

from shardwise.diagnostics.source_location import SourceLocation


def utf16_column(line: str, column: int) -> int:
    """The column of an editor for a column in bytes of UTF-8."""
    before = line.encode("utf-8")[:column].decode("utf-8", "ignore")
    return len(before.encode("utf-16-le")) // 2


def utf8_column(line: str, column: int) -> int:
    """The column in bytes of UTF-8 for one of an editor."""
    before = line.encode("utf-16-le")[: 2 * column].decode("utf-16-le", "ignore")
    return len(before.encode("utf-8"))


def range_of(location: SourceLocation, lines: list[str]) -> types.Range:
    """The span of ``location`` in a file with these lines; the whole line where its columns are not known."""
    first = location.line - 1
    line = lines[first] if 0 <= first < len(lines) else ""
    last = (location.end_line or location.line) - 1
    if location.column is None or location.end_column is None:
        start = len(line) - len(line.lstrip())
        return types.Range(types.Position(first, start), types.Position(first, utf16_column(line, len(line.encode()))))
    end = lines[last] if 0 <= last < len(lines) else ""
    return types.Range(
        types.Position(first, utf16_column(line, location.column)),
        types.Position(last, utf16_column(end, location.end_column)),
    )


def covers(span: types.Range, position: types.Position) -> bool:
    """Is the position in the span, its end included?"""
    at = position.line, position.character
    return (span.start.line, span.start.character) <= at <= (span.end.line, span.end.character)


def overlaps(one: types.Range, other: types.Range) -> bool:
    """Have two spans a line in common?"""
    return one.start.line <= other.end.line and other.start.line <= one.end.line
