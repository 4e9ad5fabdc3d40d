"""Source with marks under it: numbered lines, ``^^^^`` under the call, ``----`` under what explains it.

Marks that do not overlap share a row. The label of the last mark of a row stands beside it, the others hang below::

    7 |     y = a * b
      |         -   - b: f32[4] {tp: V}
      |         |
      |         a: f32[4] {tp: P}
"""

from __future__ import annotations

import itertools
import linecache
import re
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from .printing.paint import Line
from .printing.printable import cells, clean, window
from .source_location import SourceLocation

_ELLIPSIS = "..."
_CONTEXT = 12
"""Cells kept to the left of the first mark when a long line is trimmed."""
_NARROWEST = 24
_BOUND = "\N{NO-BREAK SPACE}"


@dataclass(frozen=True)
class Mark:
    """A span to underline, with what to say about it."""

    location: SourceLocation
    label: str = ""
    primary: bool = False

    @property
    def style(self) -> str:
        return "primary" if self.primary else "secondary"


@dataclass(frozen=True)
class _Span:
    """A mark in terminal cells of the line as it is shown."""

    start: int
    end: int
    mark: Mark


def source_line(location: SourceLocation) -> str | None:
    """The text of the first line of ``location``, None if the file cannot be read."""
    return linecache.getline(location.file, location.line).rstrip("\r\n") or None


def character_column(location: SourceLocation) -> int | None:
    """The 1-based column in characters, as editors count; Python itself counts bytes."""
    return _to_characters(location, location.column)


def end_character_column(location: SourceLocation) -> int | None:
    """The 1-based column after the last character of ``location``, on its last line."""
    last = SourceLocation(location.file, location.end_line or location.line)
    return _to_characters(last, location.end_column)


def byte_column(file: str, line: int, column: int | None) -> int | None:
    """Python's own column of the 1-based ``column`` in characters: the inverse of ``character_column``."""
    if column is None:
        return None
    text = source_line(SourceLocation(file, line))
    return column - 1 if text is None else len(text[: column - 1].encode(errors="replace"))


def _to_characters(location: SourceLocation, column: int | None) -> int | None:
    if column is None:
        return None
    text = source_line(location)
    return column + 1 if text is None else len(_prefix(text, column)) + 1


def _prefix(text: str, column: int) -> str:
    return text.encode(errors="replace")[:column].decode(errors="ignore")


def excerpt(marks: Iterable[Mark], *, gutter: int, width: int) -> list[Line]:
    """The lines of one file that carry marks; lines whose source is missing are left out."""
    by_line: dict[int, list[Mark]] = {}
    for mark in marks:
        by_line.setdefault(mark.location.line, []).append(mark)
    shown: list[Line] = []
    previous = None
    for number in sorted(by_line):
        text = source_line(by_line[number][0].location)
        if text is None:
            continue
        if previous is not None and number == previous + 2:
            between = linecache.getline(by_line[number][0].location.file, number - 1)
            shown.append(_numbered(number - 1, _fit(clean(between.rstrip("\r\n")), gutter, width), gutter))
        elif previous is not None and number > previous + 2:
            shown.append([("gutter", _ELLIPSIS)])
        shown += _line(number, text, by_line[number], gutter, max(width - gutter - 3, _NARROWEST))
        previous = number
    return shown


def _numbered(number: int, text: str, gutter: int) -> Line:
    return [("gutter", f"{number:>{gutter}} | "), ("", text)]


def _fit(text: str, gutter: int, width: int) -> str:
    room = max(width - gutter - 3, _NARROWEST)
    return text if cells(text) <= room else window(text, 0, room - len(_ELLIPSIS)) + _ELLIPSIS


def _line(number: int, text: str, marks: Sequence[Mark], gutter: int, room: int) -> list[Line]:
    spans = [_span(text, mark) for mark in marks]
    shown, spans = _trim(clean(text), spans, room)
    rows = [row for layer in _layers(_merged(spans)) for row in _rows(layer, room)]
    return [_numbered(number, shown, gutter), *([("gutter", f"{'':>{gutter}} | "), *row] for row in rows)]


def _span(text: str, mark: Mark) -> _Span:
    """Cells under ``mark``; a span over several lines is underlined to the end of its first."""
    location = mark.location
    start = 0 if location.column is None else cells(clean(_prefix(text, location.column)))
    if location.column is None:
        start = len(text) - len(text.lstrip()) if text.isascii() and "\t" not in text else 0
    whole = cells(clean(text.rstrip()))
    one_line = location.end_line in (None, location.line) and location.end_column is not None
    end = cells(clean(_prefix(text, location.end_column or 0))) if one_line else whole
    return _Span(min(start, whole), max(end, min(start, whole) + 1), mark)


def _trim(text: str, spans: list[_Span], room: int) -> tuple[str, list[_Span]]:
    """Cut a line that is too long so that the marks stay in sight, and move the marks along."""
    if cells(text) <= room:
        return text, spans
    first, last = min(span.start for span in spans), max(span.end for span in spans)
    dots = len(_ELLIPSIS)
    if last <= room - dots:
        return window(text, 0, room - dots) + _ELLIPSIS, spans
    low = max(0, first - _CONTEXT)
    lead = _ELLIPSIS if low else ""
    high = low + room - len(lead) - dots
    tail = _ELLIPSIS if high < cells(text) else ""
    shift = len(lead) - low
    moved = []
    for span in spans:
        start = min(span.start, high - 1) + shift
        moved.append(_Span(start, max(min(span.end, high) + shift, start + 1), span.mark))
    return lead + window(text, low, high) + tail, moved


def _merged(spans: list[_Span]) -> list[_Span]:
    """Marks of one kind on the very same cells become one, with the labels joined: ``x * x``."""
    merged: dict[tuple[int, int, bool], _Span] = {}
    for span in spans:
        key = (span.start, span.end, span.mark.primary)
        known = merged.get(key)
        if known is None:
            merged[key] = span
        elif span.mark.label and span.mark.label not in known.mark.label:
            label = f"{known.mark.label}; {span.mark.label}" if known.mark.label else span.mark.label
            merged[key] = _Span(span.start, span.end, Mark(span.mark.location, label, span.mark.primary))
    return list(merged.values())


def _layers(spans: list[_Span]) -> list[list[_Span]]:
    """Spread the marks over rows so that none overlap in a row; the primary mark comes first."""
    layers: list[list[_Span]] = []
    for span in sorted(spans, key=lambda span: (not span.mark.primary, span.start, -span.end)):
        for layer in layers:
            if all(span.end < other.start or other.end < span.start for other in layer):
                layer.append(span)
                break
        else:
            layers.append([span])
    return [sorted(layer, key=lambda span: span.start) for layer in layers]


def _rows(layer: list[_Span], room: int) -> list[Line]:
    """The underlines of one row, then the labels that do not fit beside them, the rightmost first."""
    underlines: Line = []
    position = 0
    for span in layer:
        underlines.append(("", " " * (span.start - position)))
        underlines.append((span.mark.style, ("^" if span.mark.primary else "-") * (span.end - span.start)))
        position = span.end
    last = layer[-1]
    hanging = [span for span in layer if span.mark.label]
    if last.mark.label and position + 1 + cells(last.mark.label) <= room:
        underlines.append((last.mark.style, f" {last.mark.label}"))
        hanging.remove(last)
    rows = [underlines]
    if hanging and len(layer) > 1:
        rows.append(_bars(hanging))
    while hanging:
        span = hanging.pop()
        # A label that would leave the page starts further left, at the price of its place under the mark, and goes on
        # in the next row if the page is too narrow for it.
        for part in _wrapped(span.mark.label, room):
            start = max(0, min(span.start, room - cells(span.mark.label)))
            left = [other for other in hanging if other.start < start]
            row = _bars(left)
            row.append(("", " " * (start - (left[-1].start + 1 if left else 0))))
            rows.append([*row, (span.mark.style, part)])
    return rows


def _wrapped(label: str, room: int) -> list[str]:
    """The label in rows, broken between words and, while there is room, not inside of a type."""
    whole = re.sub(r"(\[[^][]*\] )?\{[^{}]*\}|\[[^][]*\]", lambda match: match[0].replace(" ", _BOUND), label)
    rows = textwrap.wrap(whole, room, break_on_hyphens=False) or [""]
    return [row.replace(_BOUND, " ") for row in rows]


def _bars(spans: list[_Span]) -> Line:
    bars: Line = []
    for before, span in itertools.pairwise([None, *spans]):
        assert span is not None, "only the first of the pairs has None, on its left"
        bars += [("", " " * (span.start - (before.start + 1 if before else 0))), (span.mark.style, "|")]
    return bars
