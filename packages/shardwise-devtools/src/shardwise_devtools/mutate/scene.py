"""What an operator of mutation looks at, and what it makes of it."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from .idioms import is_declaration, is_typed, name_of
from .source import Edit, Source


@dataclass(frozen=True)
class Scene:
    """One file, the mesh axes' names, and the program's own wrappers of collectives and of messages."""

    source: Source
    axes: tuple[str, ...]
    wrappers: frozenset[str] = frozenset()
    messengers: frozenset[str] = frozenset()

    def communicates(self, node: ast.AST) -> bool:
        """A typed call, or one of the program's own functions around one."""
        return is_typed(node) or (isinstance(node, ast.Call) and bool(node.args) and name_of(node) in self.wrappers)

    def calls(self, wanted: Callable[[ast.AST], bool]) -> Iterator[ast.Call]:
        """The calls that are ``wanted``, in the order of the text; declarations are none."""
        for node in self.in_order(ast.Call):
            if isinstance(node, ast.Call) and wanted(node) and not is_declaration(self.source, node):
                yield node

    def in_order(self, kind: type[ast.AST]) -> list[ast.expr | ast.stmt]:
        """All nodes of a kind, in the order of the text."""
        nodes = [node for node in ast.walk(self.source.tree) if isinstance(node, kind)]
        return sorted((node for node in nodes if isinstance(node, ast.expr | ast.stmt)), key=self.source.span)

    def grouped(self, node: ast.expr) -> str:
        """The text of ``node``, in parentheses where it would bind otherwise in its new place."""
        text = self.source.segment(node)
        simple = isinstance(node, ast.Name | ast.Call | ast.Attribute | ast.Subscript | ast.Constant)
        return text if simple else f"({text})"


Change = tuple[ast.expr | ast.stmt, tuple[Edit, ...]]
"""The node that a reader would point at, and what is done to the text."""
Operator = Callable[[Scene], Iterator[Change]]
