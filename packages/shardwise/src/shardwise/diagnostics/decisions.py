"""What the program decides on, by its source: the test of an ``if``, the length of a loop, the end of a slice.

Asked of the source alone: the expression at a location stands in such a position itself, or is given a name that stands
in one somewhere in the same function. What goes further is not followed.
"""

from __future__ import annotations

import ast
import linecache
from collections.abc import Iterator
from dataclasses import dataclass

from .source_location import SourceLocation
from .syntax import Span, span_of


@dataclass(frozen=True)
class _Scope:
    """A function, or the module: spans that decide, names in them, and the spans of what is given a name."""

    span: Span
    deciding: tuple[Span, ...]
    names: frozenset[str]
    named: tuple[tuple[Span, str], ...]


_files: dict[str, tuple[list[str], tuple[_Scope, ...]]] = {}
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


def decides(location: SourceLocation) -> bool:
    """True if a branch, the rounds of a loop or the end of a slice depend on the expression at ``location``."""
    if location.column is None or location.end_column is None:
        return False
    own = (location.line, location.end_line or location.line, location.column, location.end_column)
    scopes = [scope for scope in _scopes(location.file) if _inside(own, scope.span)]
    if not scopes:
        return False
    # The innermost one begins last.
    scope = max(scopes, key=lambda scope: (scope.span[0], scope.span[2]))
    if any(_inside(own, span) for span in scope.deciding):
        return True
    return any(name in scope.names for span, name in scope.named if _inside(own, span))


def _inside(inner: Span, outer: Span) -> bool:
    begins = (inner[0], inner[2]) >= (outer[0], outer[2])
    return begins and (inner[1], inner[3]) <= (outer[1], outer[3])


def _scopes(file: str) -> tuple[_Scope, ...]:
    lines = linecache.getlines(file)
    known = _files.get(file)
    if known is not None and known[0] == lines:
        return known[1]
    try:
        tree = ast.parse("".join(lines))
    except (SyntaxError, ValueError, RecursionError):
        return ()
    whole = _scope(tree, (0, len(lines) + 1, 0, 0))
    scopes = (whole, *(_scope(node, span_of(node)) for node in ast.walk(tree) if isinstance(node, _SCOPES)))
    _files[file] = lines, scopes
    return scopes


def _scope(root: ast.AST, span: Span) -> _Scope:
    nodes = list(_own_nodes(root))
    deciding = [expression for node in nodes for expression in _deciding(node)]
    names = {part.id for expression in deciding for part in _of_value(expression) if isinstance(part, ast.Name)}
    named = [
        (span_of(node.value), target.id)
        for node in nodes
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    ]
    return _Scope(span, tuple(map(span_of, deciding)), frozenset(names), tuple(named))


def _own_nodes(root: ast.AST) -> Iterator[ast.AST]:
    """What stands in this scope and not in one inside it."""
    for node in ast.iter_child_nodes(root):
        if not isinstance(node, _SCOPES):
            yield node
            yield from _own_nodes(node)


def _of_value(node: ast.AST) -> Iterator[ast.AST]:
    """What stands in ``node``, but for what is only asked whether it is there, or of which kind it is."""
    yield node
    if isinstance(node, ast.Compare) and all(map(_is_none, node.comparators)):
        return
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "isinstance":
        return
    for child in ast.iter_child_nodes(node):
        yield from _of_value(child)


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _deciding(node: ast.AST) -> Iterator[ast.expr]:
    """The expressions of ``node`` that decide how the program goes on."""
    if isinstance(node, (ast.If, ast.While, ast.IfExp, ast.Assert)):
        yield node.test
    elif isinstance(node, ast.comprehension):
        yield from node.ifs
    elif isinstance(node, ast.Match):
        yield node.subject
    elif isinstance(node, ast.Slice):
        yield from (bound for bound in (node.lower, node.upper) if bound is not None)
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "range":
        yield from node.args
