"""The site's pages of the zoo: what a docstring says of its program, its mesh drawn, its code, types of its lines."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from html import escape

from shardwise.cli.zoo import BYTES, commands, needs, typed_code, who
from shardwise.diagnostics.printing.paint import Line
from shardwise.drawing.drawing import Drawing
from shardwise.drawing.tensors import LIMIT
from shardwise.zoo.catalogue import Entry, entry, names
from shardwise.zoo.program_picture import program_picture
from shardwise.zoo.schedule_picture import MOST_UNITS

NARROW, NARROW_UNITS = 374, 9
"""Pixels between the margins of a phone, and units of time that stand beside each other there."""
HEADINGS = {"Mesh": "The mesh, and why it is laid out so", "Choose": "When to choose it", "Breaks": "What breaks it"}


def pages() -> dict[str, str]:
    """Markdown by the name of the page."""
    return {f"zoo/{name}.md": "\n".join(_page(entry(name))) for name in names()}


def pictures() -> dict[str, str]:
    """The drawing of every program's mesh, and of the schedule of a pipeline, as SVG by the name of the file.

    Each is there twice: ``NAME-narrow.svg`` is laid out for phones.
    """
    wide = {f"zoo/{name}.svg": _drawing(entry(name), MOST_UNITS).svg() for name in names()}
    narrow = {f"zoo/{name}-narrow.svg": _drawing(entry(name), NARROW_UNITS).svg(NARROW) for name in names()}
    return wide | narrow


def links(folder: str) -> str:
    """Links to the pages, which lie in ``folder``."""
    return f"Each has a page here: {', '.join(f'[{name}]({folder}/{name}.md)' for name in names())}."


def _drawing(found: Entry, units: int) -> Drawing:
    return Drawing(lambda limit: program_picture(found, found.program.mesh, limit=limit, units=units, why=False), LIMIT)


def _page(found: Entry) -> Iterator[str]:
    sizes = dict(found.program.mesh)
    yield from (f"# {found.name}", "", found.title, "")
    for part, heading in HEADINGS.items():
        yield from (f"## {heading}", "", _sentence(found.parts[part], found.sizes(sizes)), "")
        if part == "Mesh":
            yield from (f"![The mesh of {found.name}: {', '.join(sizes)}]({found.name}.svg)", "")
    yield from ("## What it needs", "")
    yield from _needs(found, sizes)
    yield from ("", "## The program", "", "```python", found.code, "```", "")
    yield from ("## The type of every line", "", "As the checker finds them, of the functions that run:", "")
    code = _typed(typed_code(found, sizes))
    yield from (f'<div class="highlight types"><pre><code>{code}</code></pre></div>', "")
    yield from ("## To run it", "", "```sh", *commands(found, sizes))
    yield from (
        f"shardwise zoo {found.name} --run    # beside one device: losses, gradients, weights, bytes",
        "```",
        "",
    )


def _typed(lines: Iterable[Line]) -> str:
    """Lines of code as HTML in which a type can stand under its line where there is no room beside it."""
    return "".join(map(_typed_line, lines))


def _typed_line(line: Line) -> str:
    pieces = [escape(text) for _, text in line]
    if not line or line[-1][0] != "secondary":
        return "".join(pieces) + "\n"
    *code, pad, said = pieces
    if len(code) == 1:  # the gutter below a line that has more to say
        code, pad = [], code[0] + pad
    return f'{"".join(code)}<span class="pad">{pad}</span><span class="type">{said}\n</span>'


def _sentence(text: str, axes: Collection[str]) -> str:
    """With a capital, unless it begins with the name of an axis."""
    return text if re.split(r"\W", text)[0] in axes else text[0].upper() + text[1:]


def _needs(found: Entry, sizes: dict[str, int]) -> Iterator[str]:
    shown = ", which experts see as ".join(
        "`" + ", ".join(f"{axis}={size}" for axis, size in seen.items()) + "`" for seen in found.program.meshes(sizes)
    )
    yield f"On {shown}, in float64, {who(found)}:"
    yield from ("", "| | bytes | elements |", "| --- | ---: | --- |")
    for verb, elements, noun, formula in needs(found, sizes):
        yield f"| {verb} {noun} | {elements * BYTES:,.0f} | `{formula}` |"
    told = ", ".join(f"`{name}(e)` is `{law}`" for name, law in found.laws().items())
    yield from (
        "",
        f"where over an axis of n ranks {told}. Activations are what is kept from forward "
        "to backward at most, weights and inputs left out, and gradients the most that backward leaves. Tests compare "
        "all of them with what ranks of gloo hold, keep and receive.",
    )
