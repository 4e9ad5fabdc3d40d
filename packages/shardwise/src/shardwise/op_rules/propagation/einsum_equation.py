"""Einsum equations: their text, and from it one label per dim for every operand and for the result.

Letters as in torch: spaces do not count; without an arrow the result has the letters that occur once, in order, after
the ellipsis; the ellipsis's dims are broadcast, and summed if the result does not have them. Typing rules write
*explicit* equations: an arrow, no label twice in a term, ``...`` for as many dims wherever it is written, and ``_`` for
a dim that no mesh axis may shard.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from shardwise.diagnostics.errors import SpmdArgumentError, SpmdTypeError, shown

PLAIN = "_"
"""The label of a dim that must not be sharded."""
DOTS = "..."

Labels = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Equation:
    """``text`` as written; the labels of each operand and of the result, ``...`` not yet spelt out."""

    text: str
    inputs: tuple[Labels, ...]
    output: Labels
    explicit: bool = False

    def labels(self, ndims: Sequence[int]) -> tuple[list[Labels], Labels]:
        """One label per dim for operands with ``ndims`` dims, and for the result.

        Errors: TypeError for a wrong number of operands, SW304 for an operand with another number of dims.
        """
        if len(ndims) != len(self.inputs):
            raise SpmdArgumentError(
                f"the equation {self.text!r} has {len(self.inputs)} operands, got {len(ndims)}", code="SW304"
            )
        hidden: list[int] = []
        for position, (term, ndim) in enumerate(zip(self.inputs, ndims, strict=True)):
            count = ndim - len(term) + (DOTS in term)
            if count < 0 or (count and DOTS not in term):
                raise self._wrong_ndim(position, ndim)
            if DOTS in term:
                if self.explicit and hidden and count != hidden[0]:
                    raise SpmdTypeError(
                        f"'...' stands for {hidden[0]} dims and, on operand {position}, for {count} dims in "
                        f"{self.text!r}",
                        code="SW304",
                    )
                hidden.append(count)
        rows = [_spelt_out(term, ndim - len(term) + 1) for term, ndim in zip(self.inputs, ndims, strict=True)]
        return rows, _spelt_out(self.output, max(hidden, default=0))

    def _wrong_ndim(self, position: int, ndim: int) -> SpmdTypeError:
        term = self.inputs[position]
        expected = f"at least {len(term) - 1}" if DOTS in term else str(len(term))
        return SpmdTypeError(
            f"operand {position} of {self.text!r} is written {''.join(term)!r}, {expected} dims, but it has {ndim} "
            f"dims",
            code="SW304",
        )


def _spelt_out(term: Labels, width: int) -> Labels:
    """The labels of a term whose ellipsis has ``width`` dims, numbered from the last, as broadcasting lines them up."""
    if DOTS not in term:
        return term
    at = term.index(DOTS)
    return (*term[:at], *(f"{DOTS}{dim}" for dim in reversed(range(width))), *term[at + 1 :])


def read(text: str, *, explicit: bool = False) -> Equation:
    """The equation. Errors: TypeError (SW304) for anything that is not one with one result."""
    if not isinstance(text, str):
        raise SpmdArgumentError(f"an einsum equation is a string, got {shown(text)}", code="SW304")
    left, arrow, right = text.partition("->")
    if "->" in right or (explicit and not arrow):
        raise SpmdArgumentError(f"the equation {text!r} needs exactly one '->', as in 'bk,ok->bo'", code="SW304")
    if "," in right:
        raise SpmdArgumentError(f"the equation {text!r} has several results, expected one", code="SW304")
    inputs = tuple(_term(term, text, explicit) for term in left.split(","))
    count = Counter(label for term in inputs for label in term)
    once = sorted(label for label, times in count.items() if times == 1 and label != DOTS)
    output = _term(right, text, explicit) if arrow else (DOTS, *once)
    for label in output:
        if label not in count and label != (PLAIN if explicit else DOTS):
            raise SpmdArgumentError(f"label {label!r} of the result of {text!r} is on no operand", code="SW304")
        if label != PLAIN and output.count(label) > 1:
            raise _repeated(label, right, text)
    return Equation(text, inputs, output, explicit)


def parse(equation: str, ndims: Sequence[int]) -> tuple[list[Labels], Labels] | None:
    """The labels of operands with ``ndims`` dims, and of the result; None if the equation does not fit them."""
    try:
        return read(equation).labels(ndims)
    except SpmdTypeError:
        return None


def _term(term: str, text: str, explicit: bool) -> Labels:
    before, dots, after = term.partition(DOTS)
    if DOTS in after:
        raise SpmdArgumentError(f"the term {term.strip()!r} of {text!r} has more than one '...'", code="SW304")
    labels = (*_letters(before, text, explicit), *([DOTS] if dots else []), *_letters(after, text, explicit))
    for label in labels if explicit else ():
        if label != PLAIN and labels.count(label) > 1:
            raise _repeated(label, term, text)
    return labels


def _repeated(label: str, term: str, text: str) -> SpmdArgumentError:
    return SpmdArgumentError(f"label {label!r} is repeated in the term {term.strip()!r} of {text!r}", code="SW304")


def _letters(part: str, text: str, explicit: bool) -> list[str]:
    letters = [letter for letter in part if not letter.isspace()]
    for letter in letters:
        if not letter.isalpha() and not (explicit and letter == PLAIN):
            raise SpmdArgumentError(
                f"{letter!r} in the equation {text!r} is not a label; labels are letters", code="SW304"
            )
    return letters
