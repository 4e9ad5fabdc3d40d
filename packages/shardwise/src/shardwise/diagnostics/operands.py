"""Names and spans of the operands of a call that is being executed, as the user's program writes them.

The call's syntax tree is found by its instruction (``syntax``). An operand is matched to an argument expression by
identity where the expression is a plain name or attribute chain, then by keyword, then by position between what is
already matched. Nothing of the user's is run on the way: no call, no property, no ``__getattr__``, no ``__eq__``.
"""

from __future__ import annotations

import ast
import inspect
import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from types import FrameType, MemberDescriptorType, ModuleType
from typing import Any

from .source_location import SourceLocation
from .syntax import Expression, expression_at, source_of, span_of

_LONGEST_NAME = 48
_PARTING = ("chunk", "split", "tensor_split", "unbind")
_OPERATORS: dict[type[ast.operator], str] = {
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.MatMult: "@", ast.Pow: "**"
}  # fmt: skip
_NUMBERS = (int, float, len, round, complex)
_NUMBER_METHODS = ("item", "size", "numel", "dim", "get_rank", "get_world_size", "get_local_rank", "rank")
MISSING: Any = object()
"""What ``value_of`` gives where only running something would tell."""

_SPELLINGS = {
    "multiply": "mul",
    "subtract": "sub",
    "divide": "div",
    "true_divide": "div",
    "negative": "neg",
    "concat": "cat",
    "concatenate": "cat",
    "absolute": "abs",
    # Collectives and coercions under their other names.
    "shard": "convert",
    "invariant_to_replicate": "convert",
    "unshard": "all_gather",
    "all_gather_tensor": "all_gather_into_tensor",
}


@dataclass
class _Slot:
    """An expression that may stand for an operand, or of which it is a part.

    ``keyword`` is its name in the call, ``value`` what it is now, ``suffix`` leads from the expression to the part.
    """

    expression: ast.expr
    keyword: str = ""
    value: Any = MISSING
    suffix: str = ""
    positional: bool = True
    taken: bool = False


def locate(
    frame: FrameType, op: str, operands: Sequence[tuple[str, object]], parts: set[int] | None = None
) -> list[tuple[str, SourceLocation | None]]:
    """For every ``(label, value)`` of the call that ``frame`` is executing: its name as written, and its span.

    ``op`` is the canonical operator: only if the call is spelled like it, or is that of a module without children, do
    positions count, because other calls run operators that the user did not write. What cannot be told keeps its label
    and has no location. ``parts`` gets the positions of operands whose span is that of what holds them: of ``hs`` for
    ``hs[0]`` in ``torch.cat(hs)``, of a module for its weight.
    """
    named: list[tuple[str, SourceLocation | None]] = [(label, None) for label, _ in operands]
    try:
        found = expression_at(frame.f_code, frame.f_lasti, frame.f_globals)
        if found is None:
            return named
        slots = list(_slots(found, flatten=not any(isinstance(value, (list, tuple)) for _, value in operands)))
        for slot in slots:
            slot.value = value_of(slot.expression, frame)
        by_position = found.is_operand or _is_spelled(found.node, op) or _is_leaf_module(found.node, frame)
        if not found.is_operand and _may_be_reflected(found.node, operands):
            turned = _is_reflected(slots, frame)
            by_position = turned is not None
            if turned:
                slots.reverse()
        held = _parts(found.node, slots, frame)
        for index, match in enumerate(_match(slots, held, operands, by_position=by_position)):
            if match is not None:
                named[index] = _named(match, frame, operands[index][0])
                if parts is not None and match.suffix:
                    parts.add(index)
    except Exception:
        # Labels are an extra; a program that confuses us must not lose its finding for them.
        return [(label, None) for label, _ in operands]
    return named


def _named(slot: _Slot, frame: FrameType, label: str) -> tuple[str, SourceLocation]:
    text = _shown(slot.expression, frame.f_code.co_filename)
    name = f"{text}{slot.suffix}" if text else label
    line, end_line, column, end_column = span_of(slot.expression)
    code = frame.f_code
    return name, SourceLocation(code.co_filename, line, end_line, column, end_column, code.co_qualname)


def _shown(expression: ast.expr, file: str) -> str:
    """An expression as the source has it; of a long one its outline: ``F.linear(...).view(...)``. Else empty."""
    text = source_of(expression, file)
    if not text or len(text) <= _LONGEST_NAME:
        return text
    if isinstance(expression, ast.Call):
        text = _shown(expression.func, file)
        return f"{text}(...)" if text else ""
    if isinstance(expression, ast.Subscript):
        text = _shown(expression.value, file)
        return f"{text}[...]" if text else ""
    if isinstance(expression, ast.Attribute):
        text = _shown(expression.value, file)
        return f"{text}.{expression.attr}" if text else ""
    if isinstance(expression, ast.BinOp) and type(expression.op) in _OPERATORS:
        operator = _OPERATORS[type(expression.op)]
        left, right = (_term(side, file) for side in (expression.left, expression.right))
        return next((text for text in (f"{left} {operator} (...)", f"(...) {operator} {right}") if _fits(text)), "")
    return ""


def _term(side: ast.expr, file: str) -> str:
    text = source_of(side, file)
    return f"({text})" if isinstance(side, ast.BinOp) else text


def _fits(text: str) -> bool:
    return len(text) <= _LONGEST_NAME


def _slots(found: Expression, *, flatten: bool) -> Iterator[_Slot]:
    """The argument expressions of a call or operator, in order; ``flatten`` opens list and tuple displays."""
    for slot in _arguments(found):
        if flatten and isinstance(slot.expression, (ast.List, ast.Tuple)):
            yield from (_Slot(item, positional=slot.positional) for item in slot.expression.elts)
        else:
            yield slot


def _arguments(found: Expression) -> Iterator[_Slot]:
    node = found.node
    if found.is_operand and isinstance(node, ast.expr):
        yield _Slot(node)
    elif isinstance(node, ast.Call):
        if isinstance(node.func, ast.Attribute):
            yield _Slot(node.func.value)
        positional = True
        for argument in node.args:
            starred = isinstance(argument, ast.Starred)
            positional = positional and not starred
            yield _Slot(argument.value if isinstance(argument, ast.Starred) else argument, positional=positional)
        for keyword in node.keywords:
            yield _Slot(keyword.value, keyword=keyword.arg or "", positional=False)
    elif isinstance(node, ast.BinOp):
        yield from map(_Slot, (node.left, node.right))
    elif isinstance(node, ast.AugAssign):
        yield from map(_Slot, (node.target, node.value))
    elif isinstance(node, ast.Compare):
        yield from map(_Slot, (node.left, *node.comparators))
    elif isinstance(node, ast.Subscript):
        yield _Slot(_parted(node.value))
        yield from map(_Slot, _indices(node.slice))
        if isinstance(found.statement, (ast.Assign, ast.AugAssign, ast.AnnAssign)) and found.statement.value:
            yield _Slot(found.statement.value)
    elif isinstance(node, ast.UnaryOp):
        yield _Slot(node.operand)
    elif isinstance(node, ast.Attribute):
        yield _Slot(node.value)


def _parted(node: ast.expr) -> ast.expr:
    """``x`` of ``x.chunk(n)``, of which a piece is taken; any other expression as it is."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or node.func.attr not in _PARTING:
        return node
    by_torch = isinstance(node.func.value, ast.Name) and node.func.value.id == "torch"
    return node.args[0] if by_torch and node.args else node.func.value


def _indices(index: ast.expr) -> Iterator[ast.expr]:
    if isinstance(index, ast.Tuple):
        for item in index.elts:
            yield from _indices(item)
    elif isinstance(index, ast.Slice):
        yield from (part for part in (index.lower, index.upper, index.step) if part is not None)
    else:
        yield index


def _match(
    slots: list[_Slot], parts: list[_Slot], operands: Sequence[tuple[str, object]], *, by_position: bool
) -> list[_Slot | None]:
    matches: list[_Slot | None] = [None] * len(operands)

    def take(index: int, slot: _Slot | None) -> None:
        if slot is not None and matches[index] is None:
            matches[index] = slot
            slot.taken = True

    for index, (_, value) in enumerate(operands):
        take(index, next((slot for slot in slots if not slot.taken and _is_same(slot.value, value)), None))
    for index, (label, _) in enumerate(operands):
        take(index, next((slot for slot in slots if not slot.taken and slot.keyword == label != ""), None))
    for index, (_, value) in enumerate(operands):
        take(index, next((part for part in parts if part.value is value), None))
    if by_position:
        for indices, free in _gaps(matches, slots):
            # The operator's first operand comes first in the call; what follows it may be anything.
            if len(indices) == len(free) or indices == [0]:
                for index, slot in zip(indices, free, strict=False):
                    take(index, slot)
    return matches


def _may_be_reflected(node: ast.AST, operands: Sequence[tuple[str, object]]) -> bool:
    """Is it a tensor and a number between which an operator stands? ``2 * x`` and ``x * 2`` both come as x, 2."""
    if not isinstance(node, (ast.BinOp, ast.Compare)) or len(operands) > 2:
        return False
    tensors = [inspect.getattr_static(type(value), "shape", None) is not None for _, value in operands]
    return tensors in ([True], [True, False])


def _is_reflected(slots: list[_Slot], frame: FrameType) -> bool | None:
    """Does the number stand on the left? None where neither side tells which it is."""
    if len(slots) != 2:
        return None
    left, right = (_is_number(slot.expression, frame) for slot in slots)
    if left is None:
        return None if right is None else not right
    return left


def _is_number(expression: ast.expr, frame: FrameType) -> bool | None:
    """Does the expression give a number, and no tensor? None where only running it would tell."""
    value = value_of(expression, frame)
    if value is not MISSING:
        return inspect.getattr_static(type(value), "shape", None) is None
    if isinstance(expression, ast.UnaryOp):
        return _is_number(expression.operand, frame)
    if isinstance(expression, ast.BinOp):
        sides = [_is_number(side, frame) for side in (expression.left, expression.right)]
        return False if False in sides else None if None in sides else True
    if isinstance(expression, ast.Subscript):
        held = expression.value
        if isinstance(held, ast.Attribute) and held.attr == "shape":
            return True
        return False if _is_number(held, frame) is False else None
    if isinstance(expression, ast.Attribute):
        return False if expression.attr in ("T", "mT", "grad", "data") else None
    if not isinstance(expression, ast.Call):
        return None
    called = value_of(expression.func, frame)
    if any(called is one for one in _NUMBERS):
        return True
    if "_parameters" in _own_dict(called):
        return False  # a module
    if not isinstance(expression.func, ast.Attribute):
        return None
    if expression.func.attr in _NUMBER_METHODS:
        return True
    of = value_of(expression.func.value, frame)
    if isinstance(of, ModuleType) and of.__name__ in ("torch", "torch.nn.functional"):
        return False
    return False if _is_number(expression.func.value, frame) is False else None


def _is_same(one: object, other: object) -> bool:
    """Identity; literals, which have none, are compared by type and value."""
    return one is other or (type(one) in (int, float, bool, str) and type(one) is type(other) and bool(one == other))


def _gaps(matches: list[_Slot | None], slots: list[_Slot]) -> list[tuple[list[int], list[_Slot]]]:
    """Runs of unmatched operands, each with the free expressions between its matched neighbours."""
    position = {id(slot): index for index, slot in enumerate(slots)}
    fixed = [
        (index, position[id(slot)])
        for index, slot in enumerate(matches)
        if slot is not None and slot.positional and id(slot) in position
    ]
    if fixed != sorted(fixed, key=lambda pair: pair[1]):
        return []
    edges = [(-1, -1), *fixed, (len(matches), len(slots))]
    gaps = []
    for (index, slot), (next_index, next_slot) in itertools.pairwise(edges):
        free = [slots[i] for i in range(slot + 1, next_slot) if _may_be_operand(slots[i])]
        gaps.append(([i for i in range(index + 1, next_index) if matches[i] is None], free))
    return gaps


def _may_be_operand(slot: _Slot) -> bool:
    """Not something whose value is known and was not matched."""
    return slot.positional and not slot.taken and slot.value is MISSING


def _is_spelled(node: ast.AST, op: str) -> bool:
    """Is the call written with the operator's own name? An operator symbol always is."""
    if not isinstance(node, ast.Call):
        return True
    called = node.func
    if isinstance(called, ast.Attribute) and called.attr == "apply":
        called = called.value  # an autograd function goes by the name of its class
    name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
    return _plain(name) == _plain(op) != ""


def _is_leaf_module(node: ast.AST, frame: FrameType) -> bool:
    """A module without children hands its arguments to one operator, as LayerNorm does."""
    state = _own_dict(value_of(node.func, frame)) if isinstance(node, ast.Call) else {}
    return "_parameters" in state and state.get("_modules") == {}


def _plain(name: str) -> str:
    name = name.rpartition(".")[2].strip("_").lower()
    return _SPELLINGS.get(name, name)


def _parts(node: ast.AST, slots: list[_Slot], frame: FrameType) -> list[_Slot]:
    """The elements of list arguments, and the parameters of the module that is called."""
    parts = [
        _Slot(slot.expression, value=part, suffix=suffix) for slot in slots for suffix, part in _elements(slot.value)
    ]
    if isinstance(node, ast.Call):
        state = _module_state(value_of(node.func, frame))
        parts += [_Slot(node.func, value=part, suffix=suffix) for suffix, part in state]
    return parts


def _elements(value: object) -> Iterable[tuple[str, object]]:
    if value.__class__ is list or value.__class__ is tuple:
        return [(f"[{index}]", item) for index, item in enumerate(value)]
    return []


def _module_state(value: object, depth: int = 4) -> Iterator[tuple[str, object]]:
    """Parameters and buffers of a torch module and its children, read from its plain dicts."""
    state = _own_dict(value)
    for kind in ("_parameters", "_buffers"):
        yield from ((f".{name}", item) for name, item in _plain_dict(state.get(kind)).items())
    if depth:
        for child_name, child in _plain_dict(state.get("_modules")).items():
            # Members of a Sequential or ModuleList are told by position.
            step = f"[{child_name}]" if child_name.isdigit() else f".{child_name}"
            yield from ((f"{step}{name}", item) for name, item in _module_state(child, depth - 1))


def value_of(expression: ast.expr, frame: FrameType) -> object:
    """The value of a literal, a name or an attribute chain; missing for every other expression."""
    if isinstance(expression, ast.Constant):
        return expression.value
    if isinstance(expression, ast.Name):
        for scope in (frame.f_locals, frame.f_globals, frame.f_builtins):
            # A class body may have been given any mapping as its name space; only plain ones are read.
            if type(scope).__name__ in ("dict", "FrameLocalsProxy") and expression.id in scope:
                return scope[expression.id]
    elif isinstance(expression, ast.Attribute):
        base = value_of(expression.value, frame)
        if base is not MISSING:
            return _attribute(base, expression.attr)
    return MISSING


def _attribute(base: object, name: str) -> object:
    """``base.name`` if reading it runs no code."""
    try:
        value = inspect.getattr_static(base, name)
    except AttributeError:
        state = _own_dict(base)
        for kind in ("_parameters", "_buffers", "_modules"):
            members = _plain_dict(state.get(kind))
            if name in members:
                return members[name]
        return MISSING
    if isinstance(value, MemberDescriptorType):
        try:
            return value.__get__(base, type(base))
        except AttributeError:
            return MISSING
    # A property, a method or another descriptor stands for a value that only running it would give.
    return MISSING if hasattr(type(value), "__get__") and not callable(value) else value


def _own_dict(value: object) -> dict[str, object]:
    try:
        return _plain_dict(object.__getattribute__(value, "__dict__"))
    except AttributeError:
        return {}


def _plain_dict(value: object) -> dict[str, object]:
    return value if isinstance(value, dict) else {}
