"""A file as text and tree: the expression and the statement at a span of bytes, and where a line may be put."""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass

Span = tuple[int, int]
"""The first byte, and the one after the last."""

_PLAIN = (ast.Expr, ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Return)
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

    def place_before(self, span: Span) -> tuple[int, str] | None:
        """Where the line of the statement begins that runs what is at ``span``, with its indentation; None if none."""
        found = self._statement(span)
        if found is None or not isinstance(found[0], _PLAIN):
            return None
        statement = found[0]
        low, high = span
        for node in ast.walk(statement):
            if isinstance(node, _ELSEWHERE):
                first, last = self.span_of(node)
                if first <= low and high <= last:
                    return None
        line = self.starts[statement.lineno - 1]
        indent = self.text[line : self.span_of(statement)[0]].decode()
        return None if indent.strip() else (line, indent)

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
        end_line = statement.end_lineno or statement.lineno
        first, last = self.starts[statement.lineno - 1], self.starts[end_line]
        low, high = self.span_of(statement)
        rest = self.text[high:last].decode().strip()
        if self.text[first:low].strip() or (rest and not rest.startswith("#")):
            return None
        if len(body) == 1 and body is not self.tree.body:
            return low, high, "pass"
        return first, last, ""

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

    def _bodies(self) -> Iterator[list[ast.stmt]]:
        for node in ast.walk(self.tree):
            for _, value in ast.iter_fields(node):
                if isinstance(value, list) and value and isinstance(value[0], ast.stmt):
                    yield value
