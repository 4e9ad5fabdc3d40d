"""A picture as text: boxes of line-drawing characters, plain or coloured; on pages the alternative to the drawing."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator

from shardwise.diagnostics.printing.paint import Line, paint
from shardwise.diagnostics.printing.printable import cells

from .fitting import fitted
from .layout import TEXT, Box, Label, Mark, Shaft, marks_of
from .model import Look, Picture

WIDTH = 100
"""How wide a picture is where nobody says."""
_UP, _DOWN, _LEFT, _RIGHT = range(4)
_DIRECTIONS = {
    "UP": (_UP,),
    "DOWN": (_DOWN,),
    "LEFT": (_LEFT,),
    "RIGHT": (_RIGHT,),
    "VERTICAL": (_UP, _DOWN),
    "HORIZONTAL": (_LEFT, _RIGHT),
}
_OTHER_LINES = re.compile("DOUBLE|DASH|ARC|DIAGONAL")
_STYLES = {Look.STRONG: "strong", Look.TITLE: "strong", Look.FAINT: "quiet", Look.HEAD: "secondary"}
TONES = 6

Strokes = tuple[int, int, int, int]
"""Weights of the strokes that leave a place upwards, downwards, left and right: 0 none, 1 light, 2 heavy."""


def _line_characters() -> dict[Strokes, str]:
    """The character for every set of strokes, read off the names that Unicode gives them."""
    found = {}
    for code in range(0x2500, 0x2580):
        name = unicodedata.name(chr(code)).removeprefix("BOX DRAWINGS ")
        if _OTHER_LINES.search(name):
            continue
        strokes, weight = [0, 0, 0, 0], 0
        for part in name.split(" AND "):
            words = part.split()
            weight = 2 if "HEAVY" in words else 1 if "LIGHT" in words else weight
            for word in words:
                for direction in _DIRECTIONS.get(word, ()):
                    strokes[direction] = weight
        found[strokes[0], strokes[1], strokes[2], strokes[3]] = chr(code)
    return found


LINE_CHARACTERS = _line_characters()


def text_of(picture: Picture, width: int = WIDTH, *, color: bool = False) -> str:
    """The picture in at most ``width`` columns where it can be broken, with its title and its notes."""
    canvas = _Canvas()
    for mark in marks_of(fitted(picture, width, TEXT).block, TEXT):
        canvas.draw(mark)
    lines: list[Line] = [[("strong", picture.title)], [], *canvas.lines()]
    if picture.notes:
        lines += [[], *([("", part)] for note in picture.notes for part in _wrapped(note, width))]
    return paint(lines, color=color)


def _wrapped(note: str, width: int) -> Iterator[str]:
    line = ""
    for word in note.split(" "):
        if line and cells(line) + 1 + cells(word) > width:
            yield line
            line = "  " + word
        else:
            line = f"{line} {word}" if line else word
    yield line


class _Canvas:
    """Characters and strokes by place; strokes that meet become one character."""

    def __init__(self) -> None:
        self.characters: dict[tuple[int, int], tuple[str, str]] = {}
        self.strokes: dict[tuple[int, int], list[int]] = {}

    def draw(self, mark: Mark) -> None:
        if isinstance(mark, Box):
            self._box(mark)
        elif isinstance(mark, Label):
            left = int(mark.x) - cells(mark.text) // 2 * mark.is_centred
            self.write(left, int(mark.y), mark.text, _style(mark.look, mark.tone))
        else:
            self._shaft(mark)

    def _box(self, box: Box) -> None:
        x, y, right, bottom = int(box.x), int(box.y), int(box.x + box.width) - 1, int(box.y + box.height) - 1
        if box.covers:
            for row in range(y, bottom + 1):
                for column in range(x, right + 1):
                    self.characters.pop((column, row), None)
                    self.strokes.pop((column, row), None)
        if box.look is not Look.BARE:
            for row in (y, bottom):
                self._line(x, row, right, row)
            for column in (x, right):
                self._line(column, y, column, bottom)
        style = _style(box.look, box.tone)
        if style and box.lines:
            for row in range(y + 1, bottom):
                self.write(x + 1, row, " " * (right - x - 1), style)
        top = y + (bottom - y + 1 - len(box.lines)) // 2
        for at, line in enumerate(box.lines):
            self.write(x + (right - x + 1 - cells(line)) // 2, top + at, line, style)
        if box.title:
            self.write(x + 1, y, f" {box.title} ", _style(Look.HEAD, box.tone))

    def _shaft(self, shaft: Shaft) -> None:
        x, y, to_x, to_y = int(shaft.x), int(shaft.y), int(shaft.to_x), int(shaft.to_y)
        self._line(x, y, to_x, to_y, 2 if shaft.is_thick else 1)
        if shaft.has_head:
            self.write(to_x, to_y, "▶" if y == to_y else "▼", "")

    def _line(self, x: int, y: int, to_x: int, to_y: int, weight: int = 1) -> None:
        if y == to_y:
            for column in range(x, to_x + 1):
                self._stroke(column, y, _LEFT, weight * (column > x))
                self._stroke(column, y, _RIGHT, weight * (column < to_x))
        else:
            for row in range(y, to_y + 1):
                self._stroke(x, row, _UP, weight * (row > y))
                self._stroke(x, row, _DOWN, weight * (row < to_y))

    def _stroke(self, x: int, y: int, direction: int, weight: int) -> None:
        here = self.strokes.setdefault((x, y), [0, 0, 0, 0])
        here[direction] = max(here[direction], weight)

    def write(self, x: int, y: int, text: str, style: str) -> None:
        for character in text:
            wide = cells(character)
            if wide == 0 and (x - 1, y) in self.characters:  # a combining mark belongs to what stands before it
                before, own = self.characters[x - 1, y]
                self.characters[x - 1, y] = before + character, own
                continue
            self.characters[x, y] = character, style
            for more in range(1, wide):
                self.characters[x + more, y] = "", style
            x += wide

    def lines(self) -> Iterator[Line]:
        places = [*self.characters, *self.strokes]
        last = max((y for _, y in places), default=-1)
        ends = dict.fromkeys(range(last + 1), -1)
        for x, y in places:
            ends[y] = max(ends[y], x)
        for y in range(last + 1):
            line: Line = []
            for x in range(ends[y] + 1):
                character, style = self._at(x, y)
                if line and line[-1][0] == style:
                    line[-1] = style, line[-1][1] + character
                else:
                    line.append((style, character))
            yield line

    def _at(self, x: int, y: int) -> tuple[str, str]:
        if (x, y) in self.characters:
            return self.characters[x, y]
        strokes = self.strokes.get((x, y))
        if strokes is None:
            return " ", ""
        up, down, left, right = strokes
        return LINE_CHARACTERS.get((up, down, left, right), " "), ""


def _style(look: Look, tone: int | None) -> str:
    if tone is not None:
        return f"tone {tone % TONES}"
    return _STYLES.get(look, "")
