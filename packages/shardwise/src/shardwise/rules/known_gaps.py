"""Which true placements does the book refuse on purpose, and which operators of the database has it no row for?

A gap that is not listed here is reported as unlisted, and a test asks for none of them to be common.
"""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase


@dataclass(frozen=True, slots=True)
class Gap:
    """Why facts about some operators are refused. ``ops``: patterns of the database's names; ``code``: of the refusal,
    empty: any. ``book``: ``"global"`` or ``"local"``."""

    book: str
    ops: str
    code: str
    reason: str

    def covers(self, book: str, op: str, code: str) -> bool:
        """True if this is why ``op`` is refused with ``code``."""
        return (
            book == self.book and self.code in ("", code) and any(fnmatchcase(op, ops) for ops in self.ops.split(", "))
        )


def reason_for(book: str, op: str, code: str) -> str:
    """Why the book refuses, empty if no gap is listed."""
    return next((gap.reason for gap in GAPS if gap.covers(book, op, code)), "")


GAPS: tuple[Gap, ...] = ()

_JITERATOR = "a kernel that the program writes itself, for GPUs only: it declares its own rule"
NO_ROW = {
    "jiterator_unary": _JITERATOR,
    "jiterator_binary": _JITERATOR,
    "jiterator_4inputs_with_extra_args": _JITERATOR,
    "jiterator_binary_return_by_ref": _JITERATOR,
    "jiterator_2inputs_2outputs": _JITERATOR,
    "_batch_norm_with_update": "a kernel that batch_norm calls; programs call batch_norm, which has a row",
    "max_pool2d_with_indices_backward": "a function of the database's own, around a backward kernel",
}
"""Operators of the database without a row, by the database's name, and why."""
