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
    found = [(way, [location_in(location, one) for one in _written(call, way)]) for way in ways]
    return tuple(
        Fix(way.help, tuple(Rewrite(one, way.instead) for one in places), choice=True)
        for way, places in found
        if places
    )


def _written(call: ast.Call, way: Instead) -> list[ast.expr]:
    """The arguments of a call, or what is in them, that say ``way.said``; none if a dict would have a key twice."""
    arguments = [*call.args, *(one.value for one in call.keywords)]
    nodes = [node for argument in arguments for node in ast.walk(argument) if isinstance(node, ast.expr)]
    said, instead = _plain(way.said), _plain(way.instead)
    dicts = [one for one in nodes if isinstance(one, ast.Dict)]
    if way.beside:
        pairs = [pair for one in dicts for pair in zip(one.keys, one.values, strict=True)]
        nodes = [value for key, value in pairs if key is not None and _text(key) == _plain(way.beside)]
    keys = [[_text(key) for key in one.keys if key is not None] for one in dicts]
    twice = any(said in one and instead in one for one in keys)
    return [] if twice else [one for one in nodes if _text(one) == said]


def _text(node: ast.expr) -> str:
    return re.sub(r"\b[A-Za-z_]\w*\.", "", ast.unparse(node))


def _plain(text: str) -> str:
    return _text(ast.parse(text, mode="eval").body)
