"""Expressions of a file wrapped in transitions, as a fix says.

y + bias      with Wrap(<bias>, "convert", '"tp"', "R", "P")      y + spmd.convert(bias, "tp", src=R, dst=P)
"""

from __future__ import annotations

import ast
import itertools
from collections.abc import Sequence

import libcst as cst

from shardwise.diagnostics.fix import Wrap

from .spelling import Spelling


def wrapped(source: str, wraps: Sequence[Wrap]) -> str | None:
    """``source`` with the wraps, and what they need imported; None if that is no Python any more."""
    module = cst.parse_module(source)
    names = {name for wrap in wraps for name in (wrap.op, wrap.src[:1], wrap.dst[:1])}
    spelling = Spelling.of(module, names)
    starts = [0, *itertools.accumulate(len(line.encode()) for line in source.splitlines(keepends=True))]
    inserted: list[tuple[tuple[int, int, int, int], str]] = []
    for number, wrap in enumerate(dict.fromkeys(wraps)):
        at = wrap.location
        if at.column is None or at.end_column is None or at.end_line is None:
            return None
        start, end = starts[at.line - 1] + at.column, starts[at.end_line - 1] + at.end_column
        # Of what starts at one place the longest opens first, and of what ends at one place the shortest closes first.
        inserted.append(((start, 1, -end, number), f"{spelling.name(wrap.op)}("))
        ending = f", {wrap.axis}, src={spelling.name(wrap.src)}, dst={spelling.name(wrap.dst)})"
        inserted.append(((end, 0, -start, -number), ending))
    text = source.encode()
    for (offset, *_), piece in sorted(inserted, reverse=True):
        text = text[:offset] + piece.encode() + text[offset:]
    try:
        ast.parse(text)
    except SyntaxError:  # what is wrapped stood where only a name can stand
        return None
    return spelling.imported(cst.parse_module(text.decode())).code
