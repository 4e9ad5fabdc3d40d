"""What does an einsum equation say? Labels for every operand and for the result, the ellipsis spelt out.

Letters as in torch: spaces do not count; without an arrow the result has the letters that occur once, in order, after
the ellipsis; the ellipsis's dims are broadcast and summed if the result does not have them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

Labels = tuple[str, ...]


def parse(equation: str, ndims: Sequence[int]) -> tuple[list[Labels], Labels] | None:
    """The labels of operands with ``ndims`` dims, and of the result; None if the equation does not fit them."""
    left, arrow, right = "".join(equation.split()).partition("->")
    terms = left.split(",")
    if len(terms) != len(ndims):
        return None
    widths = [ndim - len(term.replace("...", "")) for term, ndim in zip(terms, ndims, strict=True)]
    if any(width < 0 or (width and "..." not in term) for term, width in zip(terms, widths, strict=True)):
        return None
    rows = [_spelt_out(term, width) for term, width in zip(terms, widths, strict=True)]
    widest = max((width for term, width in zip(terms, widths, strict=True) if "..." in term), default=0)
    if not arrow:
        count = Counter("".join(terms).replace("...", ""))
        right = "..." + "".join(sorted(letter for letter, times in count.items() if times == 1))
    result = _spelt_out(right, widest)
    known = {label for row in rows for label in row}
    return (rows, result) if set(result) <= known and len(set(result)) == len(result) else None


def _spelt_out(term: str, width: int) -> Labels:
    """The labels of a term whose ellipsis has ``width`` dims, numbered from the last."""
    before, dots, after = term.partition("...")
    middle = tuple(f".{at}" for at in reversed(range(width))) if dots else ()
    return (*before, *middle, *after)
