"""A file as text and tree: the expression and the statement at a span of bytes, and where lines may be put."""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass

Span = tuple[int, int]
"""The first byte, and the one after the last."""

_QUOTES = re.compile(rb"[a-zA-Z]{1,2}(\"\"\"|\'\'\'|\"|\')")
_PLAIN = (ast.Expr, ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Return)
_HEADED = (ast.If, ast.With, ast.For)
"""Statements with others in them, that run what their first line says once."""
_HEADER = re.compile(r"([ \t]*)(?:async|for|while|if|elif|else|with|try|except|finally|def|case)\b.*:([ \t]*)")
"""What stands before the first statement of a block on its line: the indentation, and the blanks behind the colon."""
_ELSEWHERE = (ast.Lambda, ast.GeneratorExp, ast.ListComp, ast.SetComp, ast.DictComp, ast.IfExp, ast.BoolOp)
"""What is in these runs not once with its statement."""


@dataclass(frozen=True)
class Source:
    """The text of a file, where its lines start, and its tree."""

    text: bytes
    starts: list[int]
    tree: ast.Module

    @classmethod
    def of(cls, source: str) -> Source:
        """Errors: SyntaxError."""
        lines = re.split(r"(?<=\n)|(?<=\r)(?!\n)", source)
        return cls(source.encode(), [0, *itertools.accumulate(len(line.encode()) for line in lines)], ast.parse(source))

    @property
    def newline(self) -> str:
        return "\r\n" if b"\r\n" in self.text else "\n"

    def offset(self, line: int, column: int) -> int:
        return self.starts[line - 1] + column

    def span_of(self, node: ast.expr | ast.stmt) -> Span:
        end_line, end_column = node.end_lineno or node.lineno, node.end_col_offset or 0
        return self.offset(node.lineno, node.col_offset), self.offset(end_line, end_column)

    def expression(self, span: Span) -> ast.expr | None:
        """The expression of exactly this span."""
        found = (node for node in ast.walk(self.tree) if isinstance(node, ast.expr) and self.span_of(node) == span)
        return next(found, None)

    def quotes_around(self, span: Span) -> str | None:
        """The quotes of the f-string that a span is in; None if it is in none."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.JoinedStr):
                start, end = self.span_of(node)
                quotes = _QUOTES.match(self.text, start)
                if start < span[0] and span[1] < end and quotes is not None:
                    return quotes[1].decode()
        return None

    def is_written(self, span: Span) -> bool:
        """Is what the tree has at a span what the text has there?"""
        node = self.expression(span)
        try:
            text = ast.parse(self.text[span[0] : span[1]].decode(), mode="eval").body
        except SyntaxError:
            return False
        return node is not None and ast.dump(node) == ast.dump(text)

    def is_statement(self, span: Span) -> bool:
        """Is what is at ``span`` all of a statement?"""
        found = self._statement(span)
        return found is not None and isinstance(found[0], ast.Expr) and self.span_of(found[0].value) == span

    def place_before(self, span: Span) -> tuple[int, str] | None:
        """Where the line of the statement begins that runs what is at ``span``, with its indentation; None if none."""
        statement = self._running(span)
        if statement is None:
            return None
        line = self.starts[statement.lineno - 1]
        indent = self.text[line : self.span_of(statement)[0]].decode()
        return None if indent.strip() else (line, indent)

    def breaks_before(self, span: Span) -> tuple[list[tuple[Span, str]], str] | None:
        """How a statement that shares its line comes to begin one: what stands for blanks and semicolons before it.

        The last of these is where lines before it may be put; with the indentation. None where no statement runs what
        is at ``span``, or the line is not only one of statements, with a header before the first of them.
        """
        statement, found = self._running(span), self._statement(span)
        if statement is None or found is None:
            return None
        body, at = found[1], found[1].index(statement)
        first = at
        while first and body[first - 1].end_lineno == body[first].lineno:
            first -= 1
        start = self.span_of(body[first])[0]
        head = self.text[self.starts[body[first].lineno - 1] : start].decode()
        indent, breaks = head, []
        if head.strip():
            header = _HEADER.fullmatch(head)
            if header is None or first:
                return None
            indent = header[1] + ("\t" if "\t" in header[1] else "    ")
            breaks.append(((start - len(header[2]), start), self.newline + indent))
        if at > first:
            between = self.span_of(body[at - 1])[1], self.span_of(statement)[0]
            if self.text[slice(*between)].strip() != b";":
                return None
            breaks.append((between, self.newline + indent))
        return (breaks, indent) if breaks else None

    def lines_around(self, span: Span) -> tuple[str, list[int]] | None:
        """The indentation of the simple statement around ``span``, and where its lines begin, but for empty ones.

        None if it shares its lines, or a string of several lines would change with the indentation.
        """
        found = self._statement(span)
        if found is None or not isinstance(found[0], _PLAIN) or any(_has_lines(node) for node in ast.walk(found[0])):
            return None
        statement = found[0]
        lines = self._lines_of(statement)
        if lines is None:
            return None
        numbers = range(statement.lineno, (statement.end_lineno or statement.lineno) + 1)
        starts = [
            self.starts[number - 1]
            for number in numbers
            if self.text[slice(*self.starts[number - 1 : number + 1])].strip()
        ]
        return self.text[lines[0] : self.span_of(statement)[0]].decode(), starts

    def in_loop(self, span: Span, other: Span) -> tuple[Span, int | None, int] | None:
        """What leaves the innermost loop around both spans: the lines of its statement with the first of them.

        And where the line behind the loop begins, None if the same statement stands behind the loop already; and by how
        much what stands in the loop is indented. None also where a string of several lines would change with the
        indentation.
        """
        loops = [node for node in ast.walk(self.tree) if isinstance(node, ast.For | ast.While) and not node.orelse]
        around = [loop for loop in loops if all(_holds(self.span_of(loop), one) for one in (span, other))]
        if not around:
            return None
        loop = max(around, key=lambda node: self.span_of(node)[0])
        moved = next((one for one in loop.body if _holds(self.span_of(one), span)), None)
        if moved is None or _holds(self.span_of(moved), other) or len(loop.body) == 1:
            return None
        lines = None if any(_has_lines(node) for node in ast.walk(moved)) else self._lines_of(moved)
        stands = any(ast.dump(one) == ast.dump(moved) for one in self._behind(loop))
        behind = None if stands else self.starts[loop.end_lineno or loop.lineno]
        return None if lines is None else (lines, behind, moved.col_offset - loop.col_offset)

    def _behind(self, statement: ast.stmt) -> list[ast.stmt]:
        """The statements that follow one in the same block."""
        for node in ast.walk(self.tree):
            for part in ("body", "orelse", "finalbody"):
                block = getattr(node, part, None)
                if isinstance(block, list) and statement in block:
                    return block[block.index(statement) + 1 :]
        return []

    def _lines_of(self, statement: ast.stmt) -> Span | None:
        """The lines of a statement that has them for itself."""
        first, last = self.starts[statement.lineno - 1], self.starts[statement.end_lineno or statement.lineno]
        low, high = self.span_of(statement)
        rest = self.text[high:last].decode().strip()
        alone = not self.text[first:low].strip() and (not rest or rest.startswith("#"))
        return (first, last) if alone else None

    def _running(self, span: Span) -> ast.stmt | None:
        """The statement that runs what is at ``span``, once and first of all; None if none does."""
        found = self._statement(span)
        if found is None:
            return None
        statement = found[0]
        if isinstance(statement, _HEADED):  # an ``elif`` has its own span, and no line may stand before it
            body = self.span_of(statement.body[0])[0]
            if span[1] > body or self.text[self.span_of(statement)[0] :].startswith(b"elif"):
                return None
        elif not isinstance(statement, _PLAIN):
            return None
        for node in ast.walk(statement):
            if isinstance(node, _ELSEWHERE) and _holds(self.span_of(node), span) and not self._is_eager(node, span):
                return None
        return statement

    def without(self, span: Span, *, with_target: bool = False) -> tuple[int, int, str] | None:
        """The lines of the statement that is nothing but the call at ``span``, and what stands there without it.

        ``with_target``  it may assign what the call gives.
        """
        found = self._statement(span)
        if found is None:
            return None
        statement, body = found
        value = statement.value if isinstance(statement, ast.Expr | ast.Assign) else None
        if value is None or self.span_of(value) != span or (isinstance(statement, ast.Assign) and not with_target):
            return None
        return self._without(statement, body)

    def divided(self, span: Span) -> tuple[int, int, str] | None:
        """The same for a statement at ``span`` that divides what is on its left."""
        found = self._statement(span)
        if found is None or not isinstance(found[0], ast.AugAssign) or self.span_of(found[0]) != span:
            return None
        return self._without(*found)

    def _without(self, statement: ast.stmt, body: list[ast.stmt]) -> tuple[int, int, str] | None:
        lines = self._lines_of(statement)
        if lines is None or (len(body) == 1 and body is not self.tree.body):
            return *self.span_of(statement), "pass"
        return *lines, ""

    def is_assigned_to(self, span: Span, operand: Span) -> bool:
        """Is it ``x = call(x)``, with the call at ``span`` and ``x`` at ``operand``?"""
        found = self._statement(span)
        if found is None or not isinstance(found[0], ast.Assign) or len(found[0].targets) != 1:
            return False
        statement, kept = found[0], self.text[slice(*operand)]
        target = statement.targets[0]
        is_name = isinstance(target, ast.Name) and self.text[slice(*self.span_of(target))] == kept
        return is_name and self.span_of(statement.value) == span

    def _statement(self, span: Span) -> tuple[ast.stmt, list[ast.stmt]] | None:
        """The innermost statement around ``span``, and the statements among which it stands."""
        low, high = span
        found = None
        for body in self._bodies():
            for statement in body:
                first, last = self.span_of(statement)
                if first <= low and high <= last and (found is None or first >= self.span_of(found[0])[0]):
                    found = statement, body
        return found

    def _is_eager(self, node: ast.expr, span: Span) -> bool:
        """Is ``span`` all of a comprehension, which runs with its statement?"""
        return self.span_of(node) == span and not isinstance(node, ast.Lambda | ast.IfExp | ast.BoolOp)

    def _bodies(self) -> Iterator[list[ast.stmt]]:
        for node in ast.walk(self.tree):
            for _, value in ast.iter_fields(node):
                if isinstance(value, list) and value and isinstance(value[0], ast.stmt):
                    yield value


def _holds(outer: Span, inner: Span) -> bool:
    return outer[0] <= inner[0] and inner[1] <= outer[1]


def _has_lines(node: ast.AST) -> bool:
    """Is it a string over several lines, which would be another one if it was indented?"""
    is_text = isinstance(node, ast.JoinedStr) or (
        isinstance(node, ast.Constant) and isinstance(node.value, str | bytes)
    )
    return is_text and getattr(node, "lineno", 0) != getattr(node, "end_lineno", 0)
