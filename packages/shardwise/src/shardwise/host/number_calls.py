"""Calls of ``int``, ``float``, ``len`` and ``range`` in a program's own files, by which a check can keep what it knows.

Python makes a plain number of whatever these are given, so nothing that a number knows of itself gets through. Where
such a call stands in the program's text, what is called is asked for in ``CARRYING`` first: ``int(rank)`` runs as
``__shardwise_carrying__(int)(rank)``. Nothing is in there unless a check runs.
"""

from __future__ import annotations

import ast
import builtins
import re
from collections.abc import Callable
from types import CodeType

CARRYING: dict[object, Callable[..., object]] = {}
"""What stands in for a builtin function."""

_NAME = "__shardwise_carrying__"
_CALLS = re.compile(rb"\b(int|float|len|range)\s*\(")
_MADE = ("int", "float", "len")


def has_number_calls(source: bytes) -> bool:
    """False if nothing in a file can be of interest, which saves parsing it."""
    return _CALLS.search(source) is not None


def carrying_numbers(source: bytes, file: str) -> CodeType | None:
    """The code of a file in which ``carry_numbers`` has changed calls; None if it has none, or is no Python."""
    if not has_number_calls(source):
        return None
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError):
        return None
    if not carry_numbers(tree):
        return None
    return compile(ast.fix_missing_locations(tree), file, "exec", dont_inherit=True)


def carry_numbers(tree: ast.AST) -> bool:
    """Let the calls in ``tree`` ask ``CARRYING``, in place; False if it has none.

    Of loops over ``range``, which compiled functions are full of, only those whose bounds speak of a rank.
    """
    found = False
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and not node.keywords:
            name = node.func.id
            if (name in _MADE and len(node.args) == 1) or (name == "range" and any(map(_speaks_of_rank, node.args))):
                asked = ast.Call(ast.copy_location(ast.Name(_NAME, ast.Load()), node.func), [node.func], [])
                node.func = ast.copy_location(asked, node.func)
                found = True
    if found:
        setattr(builtins, _NAME, _carrying)  # for good: functions of the program outlive its run
    return found


def _carrying(function: object) -> object:
    try:
        return CARRYING.get(function, function)
    except TypeError:  # a name of the program's own, for something that has no hash
        return function


def _speaks_of_rank(node: ast.AST) -> bool:
    words = (getattr(part, "id", None) or getattr(part, "attr", None) for part in ast.walk(node))
    return any("rank" in word.lower() for word in words if isinstance(word, str))
