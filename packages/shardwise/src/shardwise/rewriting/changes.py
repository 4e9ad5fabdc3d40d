"""What each kind of edit changes in the text of a file: bytes that make room for others."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import libcst as cst

from shardwise.diagnostics.fix import Argument, Edit, Insert, Leave, Remove, Replace, Rewrite, Within, Wrap
from shardwise.diagnostics.source_location import SourceLocation, lines_of

from .spelling import Spelling, module_name
from .statements import Source, Span

_DIST = "torch.distributed"
_SAID = re.compile(r"(?<![\w.])dist\.")
_OURS = re.compile(r"(?<![\w.])spmd\.(\w+)")
_ASSIGNS = re.compile(r"[\w.\[\]]+ = ")
_ATOMS = (ast.Name, ast.Attribute, ast.Call, ast.Subscript, ast.Constant)
_CLOSING, _STATEMENT, _OPENING = range(3)
_TRANSITIONS = frozenset(
    ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "convert", "reinterpret", "redistribute")
    + ("shard", "unshard", "invariant_to_replicate")
)
"""What may be replaced or left out: a call of anything else is of a function that does more on the way."""


class NoProgramError(Exception):
    """The edits cannot be made, or make no program."""


@dataclass(frozen=True, order=True)
class Change:
    """Bytes from ``start`` on make room for ``text``; of what starts at one place ``order`` says what comes first."""

    start: int
    order: tuple[int, int, int]
    end: int
    text: str


@dataclass(frozen=True)
class Context:
    """The file that is edited, as text and as a module, and how it says our names."""

    file: Source
    module: cst.Module
    spelling: Spelling

    def said(self, text: str) -> str:
        """``text`` with ``spmd`` and ``dist`` as the file says them."""
        text = _OURS.sub(lambda found: self.spelling.name(found[1]), text)
        if _SAID.search(text) is None:
            return text
        return _SAID.sub(f"{module_name(self.module, _DIST) or self.spelling.imports(_DIST, 'dist')}.", text)

    def span(self, at: SourceLocation) -> Span:
        if at.column is None or at.end_column is None or at.end_line is None:
            raise NoProgramError
        return self.file.offset(at.line, at.column), self.file.offset(at.end_line, at.end_column)

    def call(self, span: Span) -> ast.Call:
        call = self.file.expression(span)
        if not isinstance(call, ast.Call):
            raise NoProgramError
        return call


def names_of(edit: Edit) -> tuple[str, ...]:
    """The names of ours that the edit may say."""
    if isinstance(edit, Wrap | Replace):
        return (edit.op, edit.src[:1], edit.dst[:1]) if edit.op else ()
    texts = [text for name in ("text", "value", "context") if (text := getattr(edit, name, ""))]
    return tuple(_OURS.findall(" ".join([*texts, *getattr(edit, "lines", ())])))


def changes(context: Context, edit: Edit, number: int) -> Iterator[Change]:
    """What ``edit``, the one with this number, changes. Errors: NoProgramError."""
    for change in _TABLE[type(edit)](context, edit, number):
        yield _fitted(context, edit, change)


def _fitted(context: Context, edit: Edit, change: Change) -> Change:
    """The change with quotes that do not end the f-string that it is made in."""
    quotes = context.file.quotes_around((change.start, change.end))
    if quotes is None:
        return change
    if not context.file.is_written(context.span(edit.location)):  # Python 3.11 misplaces some parts of f-strings
        raise NoProgramError
    other = "'" if quotes == '"' else '"'
    return replace(change, text=change.text.replace(quotes, other) if len(quotes) == 1 else change.text)


def _around(span: Span, number: int, before: str, after: str) -> Iterator[Change]:
    """``before`` and ``after`` at the ends of a span."""
    start, end = span
    # Of what starts at one place the longest opens first, and of what ends at one place the shortest closes first.
    yield Change(start, (_OPENING, -end, number), start, before)
    yield Change(end, (_CLOSING, -start, -number), end, after)


def _wrapped(context: Context, edit: Wrap, number: int) -> Iterator[Change]:
    name = context.spelling.name
    more = f", {edit.options}" if edit.options else ""
    ending = f", {edit.axis}, src={name(edit.src)}, dst={name(edit.dst)}{more})"
    yield from _around(context.span(edit.location), number, f"{name(edit.op)}(", ending)


def _rewritten(context: Context, edit: Rewrite, number: int) -> Iterator[Change]:
    span = context.span(edit.location)
    node = context.file.expression(span)
    if node is None or (_ASSIGNS.match(edit.text) and not context.file.is_statement(span)):
        raise NoProgramError
    before, kept, after = context.said(edit.text).partition("{}")
    if not kept:
        start, end = span
        yield Change(start, (_OPENING, -end, number), end, before)
        return
    bare = isinstance(node, _ATOMS) or (before.endswith("(") and after.startswith((",", ")")))
    yield from _around(span, number, before if bare else f"{before}(", after if bare else f"){after}")


def _argument_changed(context: Context, edit: Argument, number: int) -> Iterator[Change]:
    file, span = context.file, context.span(edit.location)
    call = context.call(span)
    if any(isinstance(one, ast.Starred) for one in call.args) or any(one.arg is None for one in call.keywords):
        raise NoProgramError
    spans = [file.span_of(one) for one in call.args]
    named = {one.arg: len(spans) + at for at, one in enumerate(call.keywords)}
    spans += [(file.offset(one.lineno, one.col_offset), file.span_of(one.value)[1]) for one in call.keywords]
    at = named.get(edit.name, edit.position if 0 <= edit.position < len(call.args) else None)
    text, order = context.said(edit.value), (_OPENING, -span[1], number)
    if edit.value and at is not None:
        low, high = spans[at] if at < len(call.args) else file.span_of(call.keywords[at - len(call.args)].value)
        yield Change(low, order, high, text)
    elif edit.value:
        end = max((last for _, last in spans), default=None)
        if end is None:
            yield Change(span[1] - 1, order, span[1] - 1, f"{edit.name}={text}")
        else:
            yield Change(end, (_CLOSING, -span[0], -number), end, f", {edit.name}={text}")
    elif at is None or (at < len(call.args) and at < len(spans) - 1):
        raise NoProgramError  # it is not given, or others stand behind it by position
    else:
        ordered = sorted(spans)
        place = ordered.index(spans[at])
        low = ordered[place - 1][1] if place else spans[at][0]
        high = spans[at][1] if place else (ordered[1][0] if len(ordered) > 1 else spans[at][1])
        yield Change(low, (_STATEMENT, 0, number), high, "")


def _inserted(context: Context, edit: Insert, number: int) -> Iterator[Change]:
    span = context.span(edit.location)
    place = context.file.place_before(span)
    if place is not None:
        line, indent = place
        lines = "".join(f"{indent}{context.said(text)}{context.file.newline}" for text in edit.lines)
        yield Change(line, (_STATEMENT, 0, number), line, lines)
        return
    found = context.file.breaks_before(span)
    if found is None:
        raise NoProgramError
    breaks, indent = found
    lines = "".join(f"{context.file.newline}{indent}{context.said(text)}" for text in edit.lines)
    for (start, end), text in breaks:
        put = lines if (start, end) == breaks[-1][0] else ""
        yield Change(start, (_STATEMENT, 0, number), end, put + text)


def _removed(context: Context, edit: Remove, number: int) -> Iterator[Change]:
    span = context.span(edit.location)
    divided = context.file.divided(span)
    if divided is not None:
        yield Change(divided[0], (_STATEMENT, 0, number), divided[1], divided[2])
        return
    if _called(context.call(span)) not in _TRANSITIONS:
        raise NoProgramError
    yield _left_out(context.file, span)


def _moved_behind(context: Context, edit: Leave, number: int) -> Iterator[Change]:
    found = context.file.in_loop(context.span(edit.location), context.span(edit.loop))
    if found is None:
        raise NoProgramError
    (first, last), end, depth = found
    yield Change(first, (_STATEMENT, 0, number), last, "")
    if end is None:
        return
    lines = lines_of(context.file.text[first:last].decode())
    if any(line.strip() and not line.startswith(" " * depth) for line in lines):
        raise NoProgramError
    moved = "".join(line[depth:] if line.strip() else line for line in lines)
    newline = context.file.newline
    if context.file.text[end - 1 : end] not in (b"\n", b"\r"):
        moved = newline + moved
    yield Change(end, (_STATEMENT, 0, number), end, moved if moved.endswith(newline) else moved + newline)


def _put_within(context: Context, edit: Within, number: int) -> Iterator[Change]:
    found = context.file.lines_around(context.span(edit.location))
    if found is None:
        raise NoProgramError
    indent, starts = found
    # What is inserted before the statement has its place before the block.
    header, order = f"{indent}with {context.said(edit.context)}:{context.file.newline}", (_STATEMENT, 1, number)
    for line in starts:
        yield Change(line, order, line, f"{header if line == starts[0] else ''}    ")


def _left_out(file: Source, span: Span, *, with_target: bool = False) -> Change:
    left = file.without(span, with_target=with_target)
    if left is None:
        raise NoProgramError
    first, last, text = left
    return Change(first, (_STATEMENT, 0, 0), last, text)


def _replaced(context: Context, edit: Replace, number: int) -> Iterator[Change]:
    file, spelling = context.file, context.spelling
    (start, end), (first, last) = context.span(edit.location), context.span(edit.operand)
    opening, closing = (_OPENING, -end, number), (_CLOSING, -start, -number)
    call, operand = file.expression((start, end)), file.expression((first, last))
    if not isinstance(call, ast.Call) or _called(call) not in _TRANSITIONS or operand not in call.args[:1]:
        raise NoProgramError
    if not edit.op and file.is_assigned_to((start, end), (first, last)):
        yield _left_out(file, (start, end), with_target=True)
        return
    keywords = {keyword.arg: keyword.value for keyword in call.keywords}
    if edit.op and _called(call) == edit.op and {"src", "dst"} <= set(keywords):
        for name, wanted in (("src", edit.src), ("dst", edit.dst)):
            low, high = file.span_of(keywords[name])
            if _unprefixed(file.text[low:high].decode()) != wanted:
                yield Change(low, opening, high, spelling.name(wanted))
        return
    if b"#" in file.text[start:first] + file.text[last:end]:
        raise NoProgramError
    if not edit.op:
        one_line = operand is not None and operand.lineno == operand.end_lineno
        bare = isinstance(operand, _ATOMS) and (isinstance(operand, ast.Call) or one_line)
        yield Change(start, opening, first, "" if bare else "(")
        yield Change(last, closing, end, "" if bare else ")")
        return
    axis = call.args[1] if len(call.args) == 2 else None
    if len(call.args) > 2 or isinstance(axis, ast.Starred) or set(keywords) - {"src", "dst"}:
        raise NoProgramError  # it says more than the other transition may take
    if axis is not None:
        low, high = file.span_of(axis)
    where = edit.axis if axis is None else file.text[low:high].decode()
    yield Change(start, opening, first, f"{spelling.name(edit.op)}(")
    yield Change(last, closing, end, f", {where}, src={spelling.name(edit.src)}, dst={spelling.name(edit.dst)})")


_TABLE: dict[type[Edit], Callable[[Context, Any, int], Iterator[Change]]] = {
    Wrap: _wrapped,
    Replace: _replaced,
    Rewrite: _rewritten,
    Argument: _argument_changed,
    Insert: _inserted,
    Remove: _removed,
    Leave: _moved_behind,
    Within: _put_within,
}


def _called(call: ast.Call) -> str:
    function = call.func
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def _unprefixed(text: str) -> str:
    """``S(0)`` of ``spmd.S(0)``."""
    return re.sub(r"^(\w+\.)+", "", text)
