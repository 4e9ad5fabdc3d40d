"""Which lines decide whether a statement runs, and with what? Conditions around it, exits before it, assignments.

Of ``if skips(p): continue`` and then ``total += p.norm()`` in a loop, the test decides about the addition. Read from
the source, once per line.
"""

from __future__ import annotations

import ast
import functools
import linecache
from collections.abc import Iterator, Sequence

Lines = tuple[int, int]
"""The first and the last."""


@functools.lru_cache(maxsize=1024)
def deciding_lines(file: str, line: int) -> tuple[Lines, ...]:
    """The lines of the statement at ``line``, and of what decides about it in the function around it."""
    try:
        body = ast.parse("".join(linecache.getlines(file))).body
    except (SyntaxError, ValueError, RecursionError):
        return ()
    found: list[ast.AST] = []
    before: list[ast.stmt] = []
    statement: ast.stmt | None = None
    while (at := _index(body, line)) is not None:
        statement = body[at]
        if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            found, before = [], []  # what stands outside decides about the definition
        else:
            before += body[:at]
            found += [one.test for one in body[:at] if isinstance(one, ast.If) and _leaves(one.body)]
        if isinstance(statement, (ast.If, ast.While)) and not _in(statement.test, line):
            found.append(statement.test)
        body = next((block for block in _blocks(statement) if _index(block, line) is not None), [])
    if statement is None:
        return ()
    if not list(_blocks(statement)):
        found.append(statement)
        read = {node.id for node in ast.walk(statement) if isinstance(node, ast.Name)}
        found += [one for one in before if isinstance(one, ast.Assign) and read & _names(one.targets)]
    return tuple((one.lineno, one.end_lineno) for one in found)  # type: ignore[attr-defined]


def _index(block: Sequence[ast.stmt], line: int) -> int | None:
    return next((at for at, one in enumerate(block) if _in(one, line)), None)


def _in(node: ast.AST, line: int) -> bool:
    return bool(node.lineno <= line <= (node.end_lineno or line))  # type: ignore[attr-defined]


def _blocks(statement: ast.stmt) -> Iterator[list[ast.stmt]]:
    for name in ("body", "orelse", "finalbody"):
        block = getattr(statement, name, None)
        if isinstance(block, list) and block:
            yield block
    for handler in getattr(statement, "handlers", ()):
        yield handler.body


def _leaves(block: Sequence[ast.stmt]) -> bool:
    return isinstance(block[-1], (ast.Continue, ast.Break, ast.Return, ast.Raise))


def _names(targets: Sequence[ast.expr]) -> set[str]:
    return {node.id for target in targets for node in ast.walk(target) if isinstance(node, ast.Name)}
