"""A picture as one SVG that needs nothing else: fixed light colours, and dark ones where the reader's system is dark.

Colours stand as attributes, which every viewer understands, and again as a style sheet, which follows the system. What
a colour says is also said in words, and colours that come again come with a pattern.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from xml.sax.saxutils import escape, quoteattr

from shardwise.diagnostics.printing.printable import cells

from .fitting import fitted
from .layout import PIXELS, Box, Label, Mark, Shaft, marks_of, size_of
from .model import Look, Picture
from .text import text_of

WIDTH = 760
"""Pixels; wider pictures are broken where they can be."""
LEAST = 420
"""Pixels, if there is room: so that notes below a small drawing are read easily."""
MARGIN = 16
TITLE_SIZE, NOTE_SIZE, FONT_SIZE = 15, 12, 13
FONTS = "ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, monospace"
PROSE = "system-ui, 'Segoe UI', 'DejaVu Sans', Helvetica, Arial, sans-serif"
PROSE_WIDTHS = {**dict.fromkeys(" .,:;'|!()[]ijlIt", 0.4), **dict.fromkeys("#=+<>~%@MWmw", 0.84)}
PROSE_WIDTH = 0.62
"""Of a character of prose in its font size, and of those that are much narrower or wider: as in the widest font."""
BOLD = 1.12
"""How much wider the letters of a title are."""

LIGHT = {
    "paper": "#ffffff",
    "ink": "#1b1f24",
    "quiet": "#57606a",
    "edge": "#6e7781",
    "box": "#f6f8fa",
    "line": "#0550ae",
}
DARK = {
    "paper": "#0d1117",
    "ink": "#e6edf3",
    "quiet": "#9da7b3",
    "edge": "#7d8590",
    "box": "#161b22",
    "line": "#79c0ff",
}
TONES = ("#cfe3f7", "#fde0b0", "#cbeeda", "#f6d1e5", "#fff2a8", "#dcd5f5", "#c6eff2", "#f7cdbf")
DARK_TONES = ("#1c4b78", "#6b4a0f", "#1a5c41", "#6d2c53", "#5c5410", "#463b80", "#12595f", "#7b3521")
PATTERNS = ("", "M0 8L8 0", "M0 0L8 8", "M0 4H8", "M4 0V8")
"""One for every round of the tones; from the last on they come again."""


def svg_of(picture: Picture, width: float = WIDTH) -> str:
    """The picture as an ``<svg>`` element: well-formed XML, with ``<title>`` and ``<desc>``."""
    drawing = fitted(picture, width - 2 * MARGIN, PIXELS)
    size = size_of(drawing.block, PIXELS)
    name = "shardwise-" + hashlib.sha256(repr(picture).encode("utf-8", "replace")).hexdigest()[:10]
    marks = list(marks_of(drawing.block, PIXELS, MARGIN, MARGIN + TITLE_SIZE + 14))
    wide = max(size.width, min(width - 2 * MARGIN, max(LEAST, _prose(picture.title, TITLE_SIZE))))
    notes = [part for note in picture.notes for part in _wrapped(note, wide, NOTE_SIZE)]
    titles = _wrapped(picture.title, wide, TITLE_SIZE)
    above = (len(titles) - 1) * (TITLE_SIZE + 4)
    full_width = wide + 2 * MARGIN
    notes_top = MARGIN + TITLE_SIZE + 14 + above + size.height + 12
    full_height = notes_top + len(notes) * (NOTE_SIZE + 5) + (MARGIN - 8 if notes else 0)
    used = sorted({mark.tone for mark in marks if isinstance(mark, Box) and mark.tone is not None})
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-labelledby="{name}-title {name}-desc" '
        f'width="{_n(full_width)}" height="{_n(full_height)}" viewBox="0 0 {_n(full_width)} {_n(full_height)}" '
        f'class="{name}" style="max-width:100%;height:auto">',
        f'<title id="{name}-title">{escape(picture.title)}</title>',
        f'<desc id="{name}-desc">{escape(alternative(picture))}</desc>',
        f"<style>{_style_sheet(name, used)}</style>",
        f"<defs>{''.join(_definitions(name, used))}</defs>",
        f'<rect class="paper" width="100%" height="100%" fill="{LIGHT["paper"]}"/>',
        *(
            f'<text class="title" x="{MARGIN}" y="{_n(MARGIN + TITLE_SIZE - 3 + at * (TITLE_SIZE + 4))}" '
            f'fill="{LIGHT["ink"]}">{escape(line)}</text>'
            for at, line in enumerate(titles)
        ),
        f'<g transform="translate(0 {_n(above)})">',
        *(part for mark in marks for part in _drawn(mark, name)),
        *_links(picture, marks, name),
        "</g>",
    ]
    for at, note in enumerate(notes):
        y = notes_top + NOTE_SIZE + at * (NOTE_SIZE + 5)
        lines.append(f'<text class="note" x="{MARGIN}" y="{_n(y)}" fill="{LIGHT["quiet"]}">{escape(note)}</text>')
    return "\n".join([*lines, "</svg>"]) + "\n"


def alternative(picture: Picture) -> str:
    """The picture in words: what it shows, then the notes."""
    return " ".join([picture.description, *picture.notes])


def html_of(picture: Picture, width: float = WIDTH) -> str:
    """The picture for a notebook, which shows the ``<svg>`` and scrolls it where it is too wide."""
    return f'<div style="overflow-x:auto">{svg_of(picture, width)}</div>'


def page_of(picture: Picture, width: float = WIDTH) -> str:
    """The picture as a page of its own, with the drawing in characters below it for whoever does not see it."""
    return (
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n<title>{escape(picture.title)}</title>\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        "<style>:root{color-scheme:light dark}body{font-family:system-ui,sans-serif;margin:1rem auto;"
        "max-width:60rem;padding:0 1rem}pre{overflow-x:auto;line-height:1.2}</style>\n</head>\n<body>\n"
        f"{svg_of(picture, width)}<details><summary>as text</summary>\n<pre>{escape(text_of(picture))}</pre>\n"
        "</details>\n</body>\n</html>\n"
    )


def _n(number: float) -> str:
    return f"{number:.1f}".removesuffix(".0")


def _prose(text: str, size: float) -> float:
    wide = size * sum(cells(one) * PROSE_WIDTHS.get(one, PROSE_WIDTH) for one in text)
    return wide * BOLD if size == TITLE_SIZE else wide


def _wrapped(text: str, width: float, size: float) -> list[str]:
    lines = [""]
    for word in text.split(" "):
        longer = f"{lines[-1]} {word}" if lines[-1] else word
        if lines[-1] and _prose(longer, size) > width:
            lines.append(word)
        else:
            lines[-1] = longer
    return lines


def _style_sheet(name: str, tones: list[int]) -> str:
    def colours(of: dict[str, str], filled: tuple[str, ...]) -> str:
        fills = dict.fromkeys(f".t{tone % len(filled)}{{fill:{filled[tone % len(filled)]}}}" for tone in tones)
        rules = [
            f".paper{{fill:{of['paper']}}}",
            f"text{{fill:{of['ink']}}}",
            f".note,.faint,.head{{fill:{of['quiet']}}}",
            f".box{{stroke:{of['edge']};fill:{of['box']}}}",
            f".frame{{stroke:{of['edge']};fill:{of['paper']}}}",
            f".label{{fill:{of['paper']};stroke:{of['edge']}}}",
            f".line,.thick,.hatch{{stroke:{of['line']}}}",
            f".tip{{fill:{of['line']}}}",
            *fills,
        ]
        return "".join(f".{name} {rule}" if "," not in rule.split("{")[0] else _each(name, rule) for rule in rules)

    fonts = (
        f".{name} text{{font-family:{FONTS};font-size:{FONT_SIZE}px}}"
        f".{name} .title,.{name} .note{{font-family:{PROSE}}}"
        f".{name} .title{{font-size:{TITLE_SIZE}px;font-weight:600}}.{name} .note{{font-size:{NOTE_SIZE}px}}"
        f".{name} .strong{{font-weight:700}}"
    )
    return f"{fonts}{colours(LIGHT, TONES)}@media (prefers-color-scheme:dark){{{colours(DARK, DARK_TONES)}}}"


def _each(name: str, rule: str) -> str:
    selectors, body = rule.split("{", 1)
    return ",".join(f".{name} {one}" for one in selectors.split(",")) + "{" + body


def _definitions(name: str, tones: list[int]) -> Iterator[str]:
    yield (
        f'<marker id="{name}-tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" '
        f'orient="auto-start-reverse"><path class="tip" d="M0 0L8 4L0 8Z" fill="{LIGHT["line"]}"/></marker>'
    )
    for round_ in sorted({_pattern(tone) for tone in tones} - {0}):
        yield (
            f'<pattern id="{name}-p{round_}" width="8" height="8" patternUnits="userSpaceOnUse">'
            f'<path class="hatch" d="{PATTERNS[round_]}" stroke="{LIGHT["line"]}" stroke-opacity="0.25"/></pattern>'
        )


def _pattern(tone: int) -> int:
    return tone // len(TONES) % len(PATTERNS)


def _drawn(mark: Mark, name: str) -> Iterator[str]:
    if isinstance(mark, Box):
        yield from _box(mark, name)
    elif isinstance(mark, Label):
        yield _text(mark.x, mark.y + FONT_SIZE, mark.text, mark.look, "start")
    else:
        yield _shaft(mark, name)


def _box(box: Box, name: str) -> Iterator[str]:
    place = f'x="{_n(box.x)}" y="{_n(box.y)}" width="{_n(box.width)}" height="{_n(box.height)}"'
    if box.look is not Look.BARE:
        kind = "frame" if box.is_frame else "label" if box.look is Look.HEAD else "box"
        tone = "" if box.tone is None else f" t{box.tone % len(TONES)}"
        fill = TONES[box.tone % len(TONES)] if box.tone is not None else LIGHT["box" if kind == "box" else "paper"]
        dashes = ' stroke-dasharray="4 3"' if box.look is Look.DASHED else ""
        rounded = ' rx="6"' if box.is_frame else ""
        thick = ' stroke-width="2"' if box.look is Look.STRONG else ""
        yield f'<rect class="{kind}{tone}" {place}{rounded} fill="{fill}" stroke="{LIGHT["edge"]}"{dashes}{thick}/>'
        if box.tone is not None and _pattern(box.tone):
            yield f'<rect {place}{rounded} fill="url(#{name}-p{_pattern(box.tone)})"/>'
    if box.title:
        yield _text(box.x + PIXELS.frame_x, box.y + 17, box.title, Look.HEAD, "start")
    top = box.y + (box.height - len(box.lines) * PIXELS.line) / 2 + FONT_SIZE
    for at, line in enumerate(box.lines):
        yield _text(box.x + box.width / 2, top + at * PIXELS.line, line, box.look, "middle")


def _text(x: float, y: float, text: str, look: Look, anchor: str) -> str:
    kind = {Look.FAINT: "faint", Look.HEAD: "head", Look.STRONG: "strong", Look.TITLE: "strong"}.get(look, "")
    ink = LIGHT["quiet" if kind in ("faint", "head") else "ink"]
    attribute = f" class={quoteattr(kind)}" if kind else ""
    middle = ' text-anchor="middle"' if anchor == "middle" else ""
    return f'<text{attribute} x="{_n(x)}" y="{_n(y)}"{middle} fill="{ink}" xml:space="preserve">{escape(text)}</text>'


def _shaft(shaft: Shaft, name: str) -> str:
    head = f' marker-end="url(#{name}-tip)"' if shaft.has_head else ""
    kind, wide = ("thick", 3) if shaft.is_thick else ("line", 1.5)
    return (
        f'<path class="{kind}" d="M{_n(shaft.x)} {_n(shaft.y)}L{_n(shaft.to_x)} {_n(shaft.to_y)}" '
        f'stroke="{LIGHT["line"]}" stroke-width="{wide}" stroke-linecap="square"{head}/>'
    )


def _links(picture: Picture, marks: list[Mark], name: str) -> Iterator[str]:
    boxes = {mark.key: mark for mark in marks if isinstance(mark, Box) and mark.key is not None}
    for link in picture.links:
        if link.source in boxes and link.target in boxes:
            start, end = boxes[link.source], boxes[link.target]
            across, down = start.x + start.width / 2, start.y + start.height
            yield (
                f'<path class="line" d="M{_n(across)} {_n(down)}L{_n(end.x + end.width / 2)} {_n(end.y - 1)}" '
                f'stroke="{LIGHT["line"]}" stroke-width="1.2" stroke-opacity="0.75" marker-end="url(#{name}-tip)"/>'
            )
