"""The syntax tree around a call that is being executed: the expression that an instruction is a part of.

Python 3.11 gives every instruction the span of its expression; a file is parsed once and looked up by span. A method
call that is spread over several lines is the exception: its span starts at the method's name, so the end decides.
"""

from __future__ import annotations

import ast
import linecache
from collections.abc import Iterator
from dataclasses import dataclass
from types import CodeType

from .source import opname_of, positions_of
from .source_location import SourceLocation

Span = tuple[int, int, int, int]
"""First line, last line, first column, column after the last; columns count bytes, as everywhere in Python."""


@dataclass(frozen=True)
class Expression:
    """What an instruction computes.

    ``statement``  assigns to the node; None if the node is not the target of an assignment.
    ``is_operand`` the instruction looks at the node's value (``if x:``) instead of computing it.
    """

    node: ast.AST
    statement: ast.stmt | None = None
    is_operand: bool = False


@dataclass
class _File:
    lines: list[str]
    by_end: dict[tuple[int, int], list[ast.AST]]
    by_line: dict[int, list[ast.AST]]
    assigned: dict[ast.AST, ast.stmt]
    loops: list[ast.For | ast.While]
    returns: list[ast.expr]


_files: dict[str, _File] = {}

_ANY = (ast.expr,)
_KINDS: tuple[tuple[str, tuple[type[ast.AST], ...]], ...] = (
    ("CALL", (ast.Call,)),
    ("PRECALL", (ast.Call,)),
    ("BINARY_OP", (ast.BinOp, ast.AugAssign, ast.Subscript)),  # x[i] is one since Python 3.14
    ("BINARY_S", (ast.Subscript,)),
    ("STORE_S", (ast.Subscript,)),
    ("DELETE_SUBSCR", (ast.Subscript,)),
    ("UNARY_NOT", _ANY),
    ("UNARY_", (ast.UnaryOp,)),
    ("COMPARE_OP", (ast.Compare,)),
    ("CONTAINS_OP", (ast.Compare,)),
    ("LOAD_ATTR", (ast.Attribute,)),
    ("STORE_ATTR", (ast.Attribute,)),
)


def _kinds(opname: str) -> tuple[type[ast.AST], ...]:
    """What an instruction is compiled from; a truth test and the like look at any expression."""
    return next((kinds for prefix, kinds in _KINDS if opname.startswith(prefix)), _ANY)


def expression_at(code: CodeType, instruction: int, module_globals: dict[str, object] | None) -> Expression | None:
    """The innermost expression that instruction number ``instruction`` (``f_lasti``) of ``code`` computes.

    None if the source is missing, does not parse, or does not fit the code any more.
    """
    file = _parsed(code.co_filename, module_globals)
    if file is None:
        return None
    span = positions_of(code, instruction)
    kinds = _kinds(opname_of(code, instruction))
    candidates = [node for node in _candidates(file, span) if isinstance(node, kinds)]
    if not candidates:
        return None
    node = candidates[0]
    return Expression(node, file.assigned.get(node), is_operand=kinds is _ANY)


def source_of(node: ast.AST, filename: str) -> str:
    """The text of ``node``; newlines and runs of spaces become one space. Empty if it cannot be had."""
    file = _files.get(filename)
    if file is None:
        return ""
    line, end_line, column, end_column = span_of(node)
    if end_line > len(file.lines):
        return ""
    lines = [text.encode() for text in file.lines[line - 1 : end_line]]
    lines[-1] = lines[-1][:end_column]
    lines[0] = lines[0][column:]
    return " ".join(b"".join(lines).decode(errors="replace").split())


def span_of(node: ast.AST) -> Span:
    """The span of an expression or statement."""
    return node.lineno, node.end_lineno, node.col_offset, node.end_col_offset  # type: ignore[attr-defined]


def _candidates(file: _File, span: tuple[int | None, ...]) -> Iterator[ast.AST]:
    """Nodes that may be the one at ``span``, the best first."""
    line, end_line, column, end_column = span
    if line is None or end_line is None or column is None or end_column is None:
        # Without columns (python -X no_debug_ranges) only a lone candidate on its line is sure.
        nodes = file.by_line.get(line or 0, [])
        kinds = [type(node) for node in nodes]
        yield from (node for node in nodes if kinds.count(type(node)) == 1)
        return
    ending_here = file.by_end.get((end_line, end_column), [])
    yield from (node for node in ending_here if span_of(node) == span)
    # The start was moved to the method's name; f(g(x)) differ by their last column, so the end is enough.
    yield from (node for node in ending_here if isinstance(node, ast.Call) and _contains(node, line, column))


def _contains(node: ast.Call, line: int, column: int) -> bool:
    return (node.lineno, node.col_offset) < (line, column)


def _parsed(filename: str, module_globals: dict[str, object] | None) -> _File | None:
    lines = linecache.getlines(filename, module_globals)
    known = _files.get(filename)
    if known is not None and (known.lines is lines or known.lines == lines):
        return known
    try:
        tree = ast.parse("".join(lines)) if lines else None
    except (SyntaxError, ValueError, RecursionError):
        tree = None
    if tree is None:
        return None
    file = _File(lines, {}, {}, {}, [], [])
    for node in ast.walk(tree):
        if isinstance(node, (ast.expr, ast.AugAssign)):
            line, end_line, _, end_column = span_of(node)
            file.by_end.setdefault((end_line, end_column), []).append(node)
            file.by_line.setdefault(line, []).append(node)
        if isinstance(node, (ast.For, ast.While)):
            file.loops.append(node)
        if isinstance(node, ast.Return) and node.value is not None:
            file.returns.append(node.value)
        if isinstance(node, ast.Assign):
            file.assigned.update((target, node) for target in node.targets)
        elif isinstance(node, (ast.AugAssign, ast.AnnAssign)):
            file.assigned[node.target] = node
    _files[filename] = file
    return file


def node_at(location: SourceLocation) -> ast.AST | None:
    """The outermost expression of exactly this span; None if the source does not show it."""
    file = _parsed(location.file, None)
    span = (location.line, location.end_line, location.column, location.end_column)
    if file is None or None in span:
        return None
    return next((node for node in _candidates(file, span) if isinstance(node, ast.expr)), None)


def location_in(location: SourceLocation, node: ast.expr | ast.stmt) -> SourceLocation:
    """Where an expression or statement stands that is in the same file and function as ``location``."""
    return SourceLocation(
        location.file, node.lineno, node.end_lineno, node.col_offset, node.end_col_offset, location.function
    )


def nodes_in(filename: str) -> list[ast.AST]:
    """Every expression and augmented assignment of a file, in no order."""
    file = _parsed(filename, None)
    return [] if file is None else [node for nodes in file.by_end.values() for node in nodes]


def returned_by(code: CodeType) -> list[ast.expr]:
    """What the ``return`` statements of a function give, in no order."""
    file, lines = _parsed(code.co_filename, None), {line for _, _, line in code.co_lines()}
    return [] if file is None else [value for value in file.returns if value.lineno in lines]


def in_loop_of(one: SourceLocation, other: SourceLocation) -> bool:
    """Is ``other`` in the innermost loop around ``one``, in the same file?"""
    around = [body for body, _ in _loops(one)]
    return bool(around) and around[-1][0] <= other.line <= around[-1][1]


def loop_over(location: SourceLocation, target: str) -> ast.expr | None:
    """What the innermost loop around a location goes through, if it calls each ``target``."""
    loops = [node for _, node in _loops(location)]
    node = loops[-1] if loops else None
    is_it = isinstance(node, ast.For) and isinstance(node.target, ast.Name) and node.target.id == target
    return node.iter if is_it and isinstance(node, ast.For) else None


def _loops(location: SourceLocation) -> list[tuple[tuple[int, int], ast.For | ast.While]]:
    """The loops around a location, outermost first, each with the lines of its body."""
    file = _parsed(location.file, None)
    bodies = [((one.body[0].lineno, one.body[-1].end_lineno or one.lineno), one) for one in file.loops] if file else []
    return sorted((one for one in bodies if one[0][0] <= location.line <= one[0][1]), key=lambda one: one[0][0])


def last_assigned(location: SourceLocation, name: str) -> ast.expr | None:
    """What the nearest line above a location assigns to a variable or attribute alone; None if none does."""
    file = _parsed(location.file, None)
    values = [
        (target.lineno, statement.value)
        for target, statement in (file.assigned.items() if file else ())
        if isinstance(target, ast.Name | ast.Attribute) and isinstance(statement, ast.Assign)
        if ast.unparse(target) == name
    ]
    return max((one for one in values if one[0] < location.line), key=lambda one: one[0], default=(0, None))[1]
