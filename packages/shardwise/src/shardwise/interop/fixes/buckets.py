"""Buckets of a flat gradient that are summed one by one: they must meet, and the last one must reach the end."""

from __future__ import annotations

import ast
import itertools
from collections.abc import Iterator

from shardwise.diagnostics.fix import Fix, Rewrite
from shardwise.diagnostics.source_location import SourceLocation
from shardwise.diagnostics.syntax import location_in, loop_over, nodes_in

from .expressions import callee, text_of


def buckets_met(location: SourceLocation | None) -> tuple[Fix, ...]:
    """The bounds of buckets in the file of ``location`` so that every element is summed once.

    ``for first in range(0, stop, size)`` around a sum of ``flat[first : first + size]`` goes to the end of ``flat``; of
    two sums, of ``flat[:first]`` and of ``flat[second:]``, the one ends where the other begins.
    """
    if location is None:
        return ()
    sums = sorted(_sums(location), key=lambda one: (one[0].lineno, one[0].col_offset))
    fixes = [fix for part, cut in sums for fix in _to_the_end(location, part, cut)]
    for (part, cut), (after, next_cut) in itertools.pairwise(sums):
        base = text_of(location, part.value)
        if base != text_of(location, after.value) or cut.upper is None or next_cut.lower is None:
            continue
        begin = text_of(location, next_cut.lower)
        if text_of(location, cut.upper) != begin:
            help = f"{base}[...:{begin}] before {base}[{begin}:...], so that every element is summed once"
            fixes.append(Fix(help, (Rewrite(location_in(location, cut.upper), begin),)))
    return tuple(fixes)


def _sums(location: SourceLocation) -> Iterator[tuple[ast.Subscript, ast.Slice]]:
    """The slices that the file sums over ranks."""
    for node in nodes_in(location.file):
        if isinstance(node, ast.Call) and node.args and callee(location, node) == "all_reduce":
            part = node.args[0]
            if isinstance(part, ast.Subscript) and isinstance(part.slice, ast.Slice) and part.slice.step is None:
                yield part, part.slice


def _to_the_end(location: SourceLocation, part: ast.Subscript, cut: ast.Slice) -> Iterator[Fix]:
    """The range of the first elements of buckets up to the number of all elements."""
    begin = None if cut.lower is None else text_of(location, cut.lower)
    span = None if begin is None else loop_over(location_in(location, part), begin)
    if not isinstance(span, ast.Call) or text_of(location, span.func) != "range" or len(span.args) != 3:
        return
    start, stop, size = (text_of(location, one) for one in span.args)
    end = f"{text_of(location, part.value)}.numel()"
    if stop != end:
        help = f"range({start}, {end}, {size}) for {begin}, so that the last bucket is summed as well"
        yield Fix(help, (Rewrite(location_in(location, span.args[1]), end),))
