"""A file with the edits of fixes made: expressions wrapped or replaced, statements put in or left out.

y + bias                                Wrap       y + spmd.convert(bias, "tp", src=R, dst=P)
spmd.all_gather(y, "tp", src=S(1), dst=R)  Replace    spmd.all_gather(y, "tp", src=S(0), dst=R)
optimizer.step()                        Insert     a line before it: dist.all_reduce(weight.grad, group=dp)
dist.all_reduce(y)                      Remove     no such line

Where another transition differs from the call in a keyword only, that keyword's value is all that changes.
"""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import libcst as cst

from shardwise.diagnostics.fix import Edit, Insert, Remove, Replace, Wrap
from shardwise.diagnostics.source_location import SourceLocation

from .spelling import Spelling, module_name
from .statements import Source

_DIST = "torch.distributed"
_SAID = re.compile(r"(?<![\w.])dist\.")
_ATOMS = (ast.Name, ast.Attribute, ast.Call, ast.Subscript, ast.Constant)
_CLOSING, _STATEMENT, _OPENING = range(3)
_TRANSITIONS = frozenset(
    ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "convert", "reinterpret", "redistribute")
    + ("shard", "unshard", "invariant_to_replicate")
)
"""What may be replaced or left out: a call of anything else is of a function that does more on the way."""


class _NoProgramError(Exception):
    """The edits cannot be made, or make no program."""


@dataclass(frozen=True, order=True)
class _Change:
    """Bytes from ``start`` on make room for ``text``; of what starts at one place ``order`` says what comes first."""

    start: int
    order: tuple[int, int, int]
    end: int
    text: str


def edited(source: str, edits: Sequence[Edit]) -> str | None:
    """``source`` with the edits, and what they need imported; None if that is no Python any more."""
    module = cst.parse_module(source)
    spelling = Spelling.of(module, {name for edit in edits for name in _names(edit)})
    try:
        file = Source.of(source)
        changes = [
            change
            for number, edit in enumerate(dict.fromkeys(edits))
            for change in _changes(file, edit, number, spelling, module)
        ]
        text = _applied(file.text, changes)
        ast.parse(text)
    except (_NoProgramError, SyntaxError):  # what is wrapped stood where only a name can stand
        return None
    return spelling.imported(cst.parse_module(text.decode())).code


def _names(edit: Edit) -> tuple[str, ...]:
    """The names of ours that the edit may say."""
    return (edit.op, edit.src[:1], edit.dst[:1]) if isinstance(edit, Wrap | Replace) and edit.op else ()


def _applied(text: bytes, changes: Sequence[_Change]) -> bytes:
    ordered = sorted(changes)
    # Changes of one stretch of text are for a person to choose between.
    if any(first.end > second.start for first, second in itertools.pairwise(ordered)):
        raise _NoProgramError
    for change in reversed(ordered):
        text = text[: change.start] + change.text.encode() + text[change.end :]
    return text


def _changes(file: Source, edit: Edit, number: int, spelling: Spelling, module: cst.Module) -> Iterator[_Change]:
    start, end = _span(file, edit.location)
    # Of what starts at one place the longest opens first, and of what ends at one place the shortest closes first.
    opening, closing = (_OPENING, -end, number), (_CLOSING, -start, -number)
    if isinstance(edit, Wrap):
        ending = f", {edit.axis}, src={spelling.name(edit.src)}, dst={spelling.name(edit.dst)})"
        yield _Change(start, opening, start, f"{spelling.name(edit.op)}(")
        yield _Change(end, closing, end, ending)
    elif isinstance(edit, Insert):
        place = file.place_before((start, end))
        if place is None:
            raise _NoProgramError
        line, indent = place
        said = module_name(module, _DIST)
        if said is None and any(map(_SAID.search, edit.lines)):
            said = spelling.imports(_DIST, "dist")
        lines = "".join(f"{indent}{_SAID.sub(f'{said}.', text)}{file.newline}" for text in edit.lines)
        yield _Change(line, (_STATEMENT, 0, number), line, lines)
    elif isinstance(edit, Remove):
        call = file.expression((start, end))
        if not isinstance(call, ast.Call) or _called(call) not in _TRANSITIONS:
            raise _NoProgramError
        yield _left_out(file, (start, end))
    else:
        yield from _replaced(file, edit, spelling, opening, closing)


def _left_out(file: Source, span: tuple[int, int], *, with_target: bool = False) -> _Change:
    left = file.without(span, with_target=with_target)
    if left is None:
        raise _NoProgramError
    first, last, text = left
    return _Change(first, (_STATEMENT, 0, 0), last, text)


def _replaced(
    file: Source, edit: Replace, spelling: Spelling, opening: tuple[int, int, int], closing: tuple[int, int, int]
) -> Iterator[_Change]:
    (start, end), (first, last) = _span(file, edit.location), _span(file, edit.operand)
    call, operand = file.expression((start, end)), file.expression((first, last))
    if not isinstance(call, ast.Call) or _called(call) not in _TRANSITIONS or operand not in call.args[:1]:
        raise _NoProgramError
    if not edit.op and file.is_assigned_to((start, end), (first, last)):
        yield _left_out(file, (start, end), with_target=True)
        return
    keywords = {keyword.arg: keyword.value for keyword in call.keywords}
    if edit.op and _called(call) == edit.op and {"src", "dst"} <= set(keywords):
        for name, wanted in (("src", edit.src), ("dst", edit.dst)):
            low, high = file.span_of(keywords[name])
            if _unprefixed(file.text[low:high].decode()) != wanted:
                yield _Change(low, opening, high, spelling.name(wanted))
        return
    if b"#" in file.text[start:first] + file.text[last:end]:
        raise _NoProgramError
    if not edit.op:
        one_line = operand is not None and operand.lineno == operand.end_lineno
        bare = isinstance(operand, _ATOMS) and (isinstance(operand, ast.Call) or one_line)
        yield _Change(start, opening, first, "" if bare else "(")
        yield _Change(last, closing, end, "" if bare else ")")
        return
    axis = call.args[1] if len(call.args) == 2 else None
    if len(call.args) > 2 or isinstance(axis, ast.Starred) or set(keywords) - {"src", "dst"}:
        raise _NoProgramError  # it says more than the other transition may take
    if axis is not None:
        low, high = file.span_of(axis)
    where = edit.axis if axis is None else file.text[low:high].decode()
    yield _Change(start, opening, first, f"{spelling.name(edit.op)}(")
    yield _Change(last, closing, end, f", {where}, src={spelling.name(edit.src)}, dst={spelling.name(edit.dst)})")


def _called(call: ast.Call) -> str:
    function = call.func
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def _unprefixed(text: str) -> str:
    """``S(0)`` of ``spmd.S(0)``."""
    return re.sub(r"^(\w+\.)+", "", text)


def _span(file: Source, at: SourceLocation) -> tuple[int, int]:
    if at.column is None or at.end_column is None or at.end_line is None:
        raise _NoProgramError
    return file.offset(at.line, at.column), file.offset(at.end_line, at.end_column)
