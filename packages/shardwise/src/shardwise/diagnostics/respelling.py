"""What a call says, and what it may have meant: a name or a type in its arguments, written otherwise."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from dataclasses import dataclass

from .fix import Fix, Rewrite
from .source_location import SourceLocation
from .syntax import location_in, node_at


@dataclass(frozen=True, slots=True)
class Instead:
    """A remedy that says one of the call's arguments otherwise.

    ``said``     the expression, as ``"pp"`` or ``S(1)``; how the program says our names does not matter.
    ``instead``  what stands there then; it says our names as edits do, ``spmd.S(0)``.
    ``beside``   only where it is the value of a dict for this key; empty anywhere in the call.
    """

    help: str
    said: str
    instead: str
    beside: str = ""


def respelled(location: SourceLocation | None, ways: Sequence[Instead]) -> tuple[Fix, ...]:
    """The edits of the call at ``location`` for those of the ``ways`` whose expression is written there."""
    call = None if location is None or not ways else node_at(location)
    if location is None or not isinstance(call, ast.Call):
        return ()
    found = [(way, _unless_twice(call, way, _written(call, way.said, way.beside))) for way in ways]
    return tuple(
        Fix(way.help, tuple(Rewrite(location_in(location, one), way.instead) for one in places), choice=True)
        for way, places in found
        if places
    )


def argument_at(location: SourceLocation | None, said: str, beside: str = "") -> SourceLocation | None:
    """Where the call at ``location`` says ``said`` in its arguments; None unless it does so in one place."""
    call = None if location is None or not said else node_at(location)
    places = _written(call, said, beside) if isinstance(call, ast.Call) else []
    return location_in(location, places[0]) if location is not None and len(places) == 1 else None


def _written(call: ast.Call, said: str, beside: str) -> list[ast.expr]:
    """The arguments of a call, or what is in them, that say ``said``; ``beside`` as in ``Instead``."""
    nodes = _in_arguments(call)
    if beside:
        pairs = [pair for one in nodes if isinstance(one, ast.Dict) for pair in zip(one.keys, one.values, strict=True)]
        nodes = [value for key, value in pairs if key is not None and _text(key) == _plain(beside)]
    return [one for one in nodes if _text(one) == _plain(said)]


def _unless_twice(call: ast.Call, way: Instead, places: list[ast.expr]) -> list[ast.expr]:
    """``places``; none of them where another spelling would give a dict a key twice."""
    dicts = [one for one in _in_arguments(call) if isinstance(one, ast.Dict)]
    keys = [[_text(key) for key in one.keys if key is not None] for one in dicts]
    return [] if any(_plain(way.said) in one and _plain(way.instead) in one for one in keys) else places


def _in_arguments(call: ast.Call) -> list[ast.expr]:
    arguments = [*call.args, *(one.value for one in call.keywords)]
    return [node for argument in arguments for node in ast.walk(argument) if isinstance(node, ast.expr)]


def _text(node: ast.expr) -> str:
    return re.sub(r"\b[A-Za-z_]\w*\.", "", ast.unparse(node))


def _plain(text: str) -> str:
    return _text(ast.parse(text, mode="eval").body)
