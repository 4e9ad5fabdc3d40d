"""Is what a call in a statement has summed divided by the next one? For sums of equal values, which are averages then.

``dist.all_reduce(x)`` and ``x /= n`` together are right for an ``x`` that all ranks have, though the first alone makes
it n times too large. Read from the source of the program, once per place.
"""

from __future__ import annotations

import ast
import functools
import linecache
from collections.abc import Iterator
from itertools import pairwise

from shardwise.diagnostics.source import user_frame

_DIVIDING = ("div", "div_", "true_divide", "true_divide_", "mul", "mul_")


def divided_next() -> bool:
    """True if the statement after the program's running one divides, or scales, the first argument of its call."""
    frame = user_frame(1)
    return frame is not None and _divided(frame.f_code.co_filename, frame.f_lineno)


@functools.lru_cache(maxsize=1024)
def _divided(file: str, line: int) -> bool:
    try:
        tree = ast.parse("".join(linecache.getlines(file)))
    except SyntaxError:
        return False
    for block in _blocks(tree):
        for statement, after in pairwise(block):
            if statement.lineno <= line <= (statement.end_lineno or line) and isinstance(statement, ast.Expr):
                call = statement.value
                return isinstance(call, ast.Call) and bool(call.args) and _divides(after, ast.unparse(call.args[0]))
    return False


def _blocks(tree: ast.AST) -> Iterator[list[ast.stmt]]:
    for node in ast.walk(tree):
        for name in ("body", "orelse", "finalbody"):
            block = getattr(node, name, None)
            if isinstance(block, list):
                yield block


def _divides(statement: ast.stmt, operand: str) -> bool:
    """``operand`` is what the statement divides: ``x /= n``, ``x.div_(n)``, ``y = x / n``."""
    if isinstance(statement, (ast.For, ast.While, ast.If, ast.With, ast.FunctionDef, ast.ClassDef)):
        return False
    for node in ast.walk(statement):
        if isinstance(node, ast.AugAssign) and isinstance(node.op, (ast.Div, ast.Mult)):
            left: ast.AST = node.target
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
            left = node.left
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _DIVIDING:
            left = node.func.value
        else:
            continue
        if ast.unparse(left) == operand:
            return True
    return False
