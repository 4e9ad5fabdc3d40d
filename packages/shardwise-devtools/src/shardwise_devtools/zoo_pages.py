"""The site's pages of the zoo: what a docstring says of its program, its mesh drawn, its code, types of its lines."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator

from shardwise.cli.zoo import BYTES, commands, typed_code
from shardwise.drawing.drawing import Drawing
from shardwise.drawing.tensors import LIMIT
from shardwise.zoo.catalogue import Entry, entry, names
from shardwise.zoo.program_picture import program_picture

HEADINGS = {"Mesh": "The mesh, and why it is laid out so", "Choose": "When to choose it", "Breaks": "What breaks it"}


def pages() -> dict[str, str]:
    """Markdown by the name of the page."""
    return {f"zoo/{name}.md": "\n".join(_page(entry(name))) for name in names()}


def pictures() -> dict[str, str]:
    """The drawing of every program's mesh, and of the schedule of a pipeline, as SVG by the name of the file."""
    return {f"zoo/{name}.svg": _drawing(entry(name)).svg() for name in names()}


def links(folder: str) -> str:
    """Links to the pages, which lie in ``folder``."""
    return f"Each has a page here: {', '.join(f'[{name}]({folder}/{name}.md)' for name in names())}."


def _drawing(found: Entry) -> Drawing:
    return Drawing(lambda limit: program_picture(found, found.program.mesh, limit=limit), LIMIT)


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
    yield from ("```text", typed_code(found, sizes), "```", "")
    yield from ("## To run it", "", "```sh", *commands(found, sizes))
    yield from (
        f"shardwise zoo {found.name} --run    # beside one device: losses, gradients, weights, bytes",
        "```",
        "",
    )


def _sentence(text: str, axes: Collection[str]) -> str:
    """With a capital, unless it begins with the name of an axis."""
    return text if re.split(r"\W", text)[0] in axes else text[0].upper() + text[1:]


def _needs(found: Entry, sizes: dict[str, int]) -> Iterator[str]:
    shown = ", which experts see as ".join(
        "`" + ", ".join(f"{axis}={size}" for axis, size in seen.items()) + "`" for seen in found.program.meshes(sizes)
    )
    yield f"On {shown}, in float64, a rank"
    yield from ("", "| | bytes | elements |", "| --- | ---: | --- |")
    yield f"| holds of the weights | {found.memory(sizes) * BYTES:,.0f} | `{found.parts['Memory']}` |"
    yield f"| keeps of momentum | {found.state(sizes) * BYTES:,.0f} | `{found.parts['State']}` |"
    formulas = found.traffic_formulas()
    for axis, elements in found.traffic(sizes).items():
        yield f"| receives a step over {axis} | {elements * BYTES:,.0f} | `{formulas[axis]}` |"
    told = ", ".join(f"`{name}(e)` is `{law}`" for name, law in found.laws().items())
    yield from (
        "",
        f"where over an axis of n ranks {told}. Tests compare both with what ranks of gloo hold and receive.",
    )
