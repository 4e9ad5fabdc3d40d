"""What do the letters of an einsum equation say about the dims of its operands? Text to labels, and nothing else.

A label names a logical dim; ``_`` is a dim that no mesh axis may shard; ``...`` stands for the same number of leading
dims wherever it is written, and its dims are labelled by their position.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from shardwise.types.errors import SpmdArgumentError, SpmdTypeError

PLAIN = "_"
"""The label of a dim that must not be sharded."""
DOTS = "..."


@dataclass(frozen=True, slots=True)
class Equation:
    """``text`` as written; the labels of each operand and of the result, ``...`` not yet expanded."""

    text: str
    inputs: tuple[tuple[str, ...], ...]
    output: tuple[str, ...]


def parse(text: str) -> Equation:
    """Errors: TypeError for anything that is not an equation with one result."""
    if not isinstance(text, str):
        raise SpmdArgumentError(f"an einsum equation is a string, got {text!r}", code="SW304")
    sides = text.split("->")
    if len(sides) != 2:
        raise SpmdArgumentError(f"the equation {text!r} needs exactly one '->', as in 'bk,ok->bo'", code="SW304")
    if "," in sides[1]:
        raise SpmdArgumentError(f"the equation {text!r} has several results, expected one", code="SW304")
    inputs = tuple(_term(term, text) for term in sides[0].split(","))
    output = _term(sides[1], text)
    known = {label for term in inputs for label in term}
    for label in output:
        if label != PLAIN and label not in known:
            raise SpmdArgumentError(f"label {label!r} of the result of {text!r} is on no operand", code="SW304")
    return Equation(text, inputs, output)


def _term(term: str, text: str) -> tuple[str, ...]:
    before, dots, after = term.partition(DOTS)
    if DOTS in after:
        raise SpmdArgumentError(f"the term {term.strip()!r} of {text!r} has more than one '...'", code="SW304")
    labels = (*_letters(before, text), *([DOTS] if dots else []), *_letters(after, text))
    for label in labels:
        if label != PLAIN and labels.count(label) > 1:
            raise SpmdArgumentError(
                f"label {label!r} is repeated in the term {term.strip()!r} of {text!r}", code="SW304"
            )
    return labels


def _letters(part: str, text: str) -> list[str]:
    letters = [letter for letter in part if not letter.isspace()]
    for letter in letters:
        if letter != PLAIN and not letter.isalpha():
            raise SpmdArgumentError(
                f"{letter!r} in the equation {text!r} is not a label; labels are letters", code="SW304"
            )
    return letters


def label_dims(equation: Equation, ndims: Sequence[int]) -> tuple[list[tuple[str, ...]], tuple[str, ...]]:
    """One label per dim for every operand, and for the result.

    Errors: TypeError for a wrong number of operands, SW304 for an operand with another number of dims.
    """
    if len(ndims) != len(equation.inputs):
        raise SpmdArgumentError(
            f"the equation {equation.text!r} has {len(equation.inputs)} operands, got {len(ndims)}", code="SW304"
        )
    hidden: int | None = None
    for position, (term, ndim) in enumerate(zip(equation.inputs, ndims, strict=True)):
        if DOTS not in term:
            if len(term) != ndim:
                raise _wrong_ndim(equation, position, term, ndim)
            continue
        count = ndim - len(term) + 1
        if count < 0:
            raise _wrong_ndim(equation, position, term, ndim)
        if hidden not in (None, count):
            raise SpmdTypeError(
                f"'...' stands for {hidden} dims and, on operand {position}, for {count} dims in {equation.text!r}",
                code="SW304",
            )
        hidden = count
    dots = tuple(f"...{dim}" for dim in range(hidden or 0))
    return [_expand(term, dots) for term in equation.inputs], _expand(equation.output, dots)


def _expand(term: tuple[str, ...], dots: tuple[str, ...]) -> tuple[str, ...]:
    if DOTS not in term:
        return term
    at = term.index(DOTS)
    return (*term[:at], *dots, *term[at + 1 :])


def _wrong_ndim(equation: Equation, position: int, term: tuple[str, ...], ndim: int) -> SpmdTypeError:
    labels = "".join(term)
    expected = f"at least {len(term) - 1}" if DOTS in term else str(len(term))
    return SpmdTypeError(
        f"operand {position} of {equation.text!r} is written {labels!r}, {expected} dims, but it has {ndim} dims",
        code="SW304",
    )
