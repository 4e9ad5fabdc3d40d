"""Where a program's own files make plain numbers of what it is given, and a check can keep what it knows.

Python makes a plain number of whatever ``int``, ``float``, ``len``, ``range`` and the functions of ``math`` are
given, and ``min`` and ``max`` give back one of several, so nothing that a number knows of itself gets through. Where
such a call stands in the program's text, what is called is asked for in ``CARRYING`` first: ``int(rank)`` runs as
``__shardwise_carrying__(int)(rank)``. So does a float in front of an operator: ``1.0 / ranks`` is worked out by the
float, which takes any int for a plain one, and so runs as ``1.0 / __shardwise_beside__(ranks)``. Nothing is in
``CARRYING`` unless a check runs.
"""

from __future__ import annotations

import ast
import builtins
import re
from collections.abc import Callable, Set
from types import CodeType

CARRYING: dict[object, Callable[..., object]] = {}
"""What stands in for a builtin function."""

_NAME = "__shardwise_carrying__"
_BESIDE = "__shardwise_beside__"
_CALLS = re.compile(rb"\b(int|float|len|range|min|max)\s*\(|\bmath\s*\.|\d\.|\.\d|\d[eE][-+]?\d")
_MADE = ("int", "float", "len")
_CHOSEN = ("min", "max")
_BY_A_FLOAT = (ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv, ast.Mod, ast.Pow)
"""Operators that a float in front works out."""


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
    floats = _names_of_floats(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and not node.keywords and _makes_plain(node):
            asked = ast.Call(ast.copy_location(ast.Name(_NAME, ast.Load()), node.func), [node.func], [])
            node.func = ast.copy_location(asked, node.func)
        elif isinstance(node, ast.BinOp) and _is_by_a_float(node, floats):
            beside = ast.Call(ast.copy_location(ast.Name(_BESIDE, ast.Load()), node.right), [node.right], [])
            node.right = ast.copy_location(beside, node.right)
        else:
            continue
        found = True
    if found:
        setattr(builtins, _NAME, _carrying)  # for good: functions of the program outlive its run
        setattr(builtins, _BESIDE, beside_float)
    return found


def beside_float(right: object) -> object:
    """What a float in front of an operator is given: ``right``, or what stands in for it."""
    stand_in = CARRYING.get(beside_float)
    return right if stand_in is None else stand_in(right)


def _makes_plain(call: ast.Call) -> bool:
    function = call.func
    if isinstance(function, ast.Attribute):
        return isinstance(function.value, ast.Name) and function.value.id == "math" and len(call.args) == 1
    if not isinstance(function, ast.Name):
        return False
    name = function.id
    if name == "range":
        return any(map(_speaks_of_rank, call.args))
    return (name in _MADE and len(call.args) == 1) or (name in _CHOSEN and len(call.args) > 1)


def _is_by_a_float(node: ast.BinOp, floats: Set[str]) -> bool:
    return (
        isinstance(node.op, _BY_A_FLOAT) and _is_float(node.left, floats) and not isinstance(node.right, ast.Constant)
    )


def _is_float(node: ast.AST, floats: Set[str] = frozenset()) -> bool:
    """True for what is a float and not a tensor wherever it stands: a number with a point, and arithmetic with it."""
    if isinstance(node, ast.Constant):
        return isinstance(node.value, float)
    if isinstance(node, ast.Name):
        return node.id in floats
    if isinstance(node, ast.UnaryOp):
        return isinstance(node.op, (ast.USub, ast.UAdd)) and _is_float(node.operand, floats)
    if not isinstance(node, ast.BinOp) or not isinstance(node.op, _BY_A_FLOAT):
        return False
    sides = (node.left, node.right)
    whole = [isinstance(side, ast.Constant) and isinstance(side.value, int) for side in sides]
    if all(whole):
        return isinstance(node.op, ast.Div)
    return all(is_whole or _is_float(side, floats) for is_whole, side in zip(whole, sides, strict=True))


def _names_of_floats(tree: ast.AST) -> Set[str]:
    """Names that the whole file uses for nothing but floats that it writes down, as ``RATE = 0.1``."""
    given: set[int] = set()
    names: set[str] = set()
    other: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, (ast.Assign, ast.AnnAssign)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if node.value is not None and _is_float(node.value) and all(isinstance(x, ast.Name) for x in targets):
                given.update(id(target) for target in targets)
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            (names if id(node) in given else other).add(node.id)
        elif isinstance(node, ast.arg):
            other.add(node.arg)
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            other.add(node.name)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            other.update((alias.asname or alias.name).partition(".")[0] for alias in node.names)
        elif isinstance(node, (ast.Global, ast.Nonlocal)):
            other.update(node.names)
        elif isinstance(node, (ast.ExceptHandler, ast.MatchAs, ast.MatchStar)) and node.name:
            other.add(node.name)
        elif isinstance(node, ast.MatchMapping) and node.rest:
            other.add(node.rest)
    return names - other


def _carrying(function: object) -> object:
    try:
        return CARRYING.get(function, function)
    except TypeError:  # a name of the program's own, for something that has no hash
        return function


def _speaks_of_rank(node: ast.AST) -> bool:
    words = (getattr(part, "id", None) or getattr(part, "attr", None) for part in ast.walk(node))
    return any("rank" in word.lower() for word in words if isinstance(word, str))
