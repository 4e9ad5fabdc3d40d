"""Mistakes in messages and in who holds what: another neighbour, a message that is not sent, a group of another axis,
blocks in another order, a piece of another rank, a sum that is a mean.

A message is a call that sends to a rank or receives from one, or a function of the program around such calls.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from .idioms import is_message, is_raw, name_of
from .scene import Change, Operator, Scene

WORLD = "__import__('torch').distributed.get_world_size()"
_TYPE = re.compile(r"[a-z]+\d*\[.*\]")
_ORDER = re.compile(r"@\((\w+),\s*(\w+)((?:,\s*\w+)*)\)")
_LETTER = re.compile(r"(?<=: )[RIPV](?=[,}])")


def neighbour(scene: Scene) -> Iterator[Change]:
    """The message goes to the rank on the other side, to the one after, or comes from there."""
    for call in scene.calls(lambda node: is_message(node) or name_of(node) in scene.messengers):
        for argument in [*call.args, *(one.value for one in call.keywords)]:
            yield from _other_steps(scene, call, argument)


def _other_steps(scene: Scene, call: ast.Call, argument: ast.expr) -> Iterator[Change]:
    """``rank + 1`` and the ``1`` or ``-1`` of a shift, turned round and one further."""
    for node in ast.walk(argument):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub):
            left, right = scene.source.segment(node.left), scene.source.segment(node.right)
            here, other = ("+", "-") if isinstance(node.op, ast.Add) else ("-", "+")
            yield call, (scene.source.replace(node, f"{left} {other} {right}"),)
            yield call, (scene.source.replace(node, f"{left} {here} {right} {here} 1"),)
            return
    if is_message(call):
        return
    sign, number = (-1, argument.operand) if isinstance(argument, ast.UnaryOp) else (1, argument)
    if isinstance(number, ast.Constant) and type(number.value) is int:
        for step in (-sign * number.value, sign * (number.value + 1)):
            yield call, (scene.source.replace(argument, str(step)),)


def unsent(scene: Scene) -> Iterator[Change]:
    """A message is forgotten: it is not sent, or what would have come is what was there."""
    for call in scene.calls(lambda node: name_of(node) in scene.messengers and bool(getattr(node, "args", ()))):
        statement = scene.source.parents.get(call)
        if isinstance(statement, ast.Expr):
            yield statement, (scene.source.replace(statement, "pass"),)
        else:
            yield call, (scene.source.replace(call, scene.grouped(call.args[0])),)
    for call in scene.calls(is_message):
        statement = scene.source.parents.get(call)
        if isinstance(statement, ast.Expr):
            yield statement, (scene.source.replace(statement, "pass"),)


def tag(scene: Scene) -> Iterator[Change]:
    """A message has the tag of another kind."""
    tags: dict[str, None] = {}
    named = []
    for call in scene.calls(is_message):
        for argument in [*call.args, *(one.value for one in call.keywords)]:
            if isinstance(argument, ast.Name) and argument.id.isupper():
                tags[argument.id] = None
                named.append((call, argument))
    for call, argument in named:
        for other in tags:
            if other != argument.id:
                yield call, (scene.source.replace(argument, other),)


def group(scene: Scene) -> Iterator[Change]:
    """The group, size or rank of another axis is asked for; calls of collectives are ``axis``'s."""
    for node in scene.in_order(ast.Constant):
        if not isinstance(node, ast.Constant) or node.value not in scene.axes:
            continue
        parent = scene.source.parents.get(node)
        asks = isinstance(parent, ast.Subscript) and scene.source.segment(parent.value).endswith("mesh")
        asks |= isinstance(parent, ast.Call) and name_of(parent) in ("get_group", "get_local_rank")
        if asks and not any(is_raw(one) for one in scene.source.around(node)):
            assert isinstance(parent, ast.expr), "a subscript or a call"
            for other in scene.axes:
                if other != node.value:
                    yield parent, (scene.source.replace(node, f'"{other}"'),)


def blocks(scene: Scene) -> Iterator[Change]:
    """Blocks lie in another order: the axes of a dim are exchanged in a type, pieces where they are put together."""
    for node in _types(scene):
        text = scene.source.segment(node)
        for found in _ORDER.finditer(text):
            turned = f"@({found[2]},{found[1]}{found[3]})"
            yield node, (scene.source.replace(node, text[: found.start()] + turned + text[found.end() :]),)
    for call in scene.calls(lambda node: name_of(node) in ("cat", "stack")):
        if call.args:
            pieces = scene.source.segment(call.args[0])
            yield call, (scene.source.replace(call.args[0], f"list({pieces})[::-1]"),)


def letter(scene: Scene) -> Iterator[Change]:
    """A type that is written names another placement: its gradient is summed, or is not."""
    for node in _types(scene):
        text = scene.source.segment(node)
        for found in _LETTER.finditer(text):
            for other in {"R": "IV", "I": "RV", "P": "R", "V": "R"}[found[0]]:
                yield node, (scene.source.replace(node, text[: found.start()] + other + text[found.end() :]),)


def _types(scene: Scene) -> Iterator[ast.Constant]:
    for node in scene.in_order(ast.Constant):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and _TYPE.match(node.value):
            yield node


def scale(scene: Scene) -> Iterator[Change]:
    """A sum over ranks is divided by their number."""
    for call in scene.calls(scene.communicates):
        if name_of(call) in ("all_reduce", "reduce_scatter") or name_of(call) in scene.wrappers:
            yield call, (scene.source.replace(call, f"({scene.source.segment(call)} / {WORLD})"),)
    for node in scene.in_order(ast.Expr):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and is_raw(node.value):
            text, sent = scene.source.segment(node), scene.grouped(node.value.args[0])
            yield node, (scene.source.replace(node, f"{text}; {sent}.div_({WORLD})"),)


def slice_(scene: Scene) -> Iterator[Change]:
    """The piece of another rank is taken: the first one on all, or that of the rank before."""
    for node in scene.in_order(ast.Subscript):
        if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load) and _names_a_rank(node.slice):
            index = scene.grouped(node.slice)
            for other in ("0", f"{index} - 1"):
                yield node, (scene.source.replace(node.slice, other),)


def _names_a_rank(node: ast.expr) -> bool:
    words = [one.id for one in ast.walk(node) if isinstance(one, ast.Name)]
    words += [one.attr for one in ast.walk(node) if isinstance(one, ast.Attribute)]
    return any("rank" in word for word in words)


OPERATORS: tuple[Operator, ...] = (neighbour, unsent, tag, group, blocks, letter, scale, slice_)
