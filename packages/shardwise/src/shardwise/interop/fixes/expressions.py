"""How does the program write something, where it runs now? For fixes only: names that lead to a value, and calls."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from types import FrameType

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from shardwise.diagnostics.operands import MISSING, value_of
from shardwise.diagnostics.source import user_frame
from shardwise.diagnostics.source_location import SourceLocation
from shardwise.diagnostics.syntax import node_at, source_of
from shardwise.mesh.axis import MeshAxis

from ..calls.located_call import group_text
from ..torch_compat import no_torch_function

_COMPREHENSIONS = ("<listcomp>", "<genexpr>", "<setcomp>", "<dictcomp>")
_SIZES = re.compile(
    r"\b(world|size|get_world_size|world_size|n_?ranks|num_ranks|degree)\b|_size\b|size\(", re.IGNORECASE
)
_PATH = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*|\[\w+\])*")


def is_path(text: str) -> bool:
    """Is it a variable, an attribute or an entry of one, so that it can be written down again?"""
    return _PATH.fullmatch(text) is not None


def expression_of(value: object) -> str | None:
    """The variable of the running function, or the attribute of one, that is this very value; None if none is."""
    return next((text for text, one in _in_sight() if one is value), None)


def holder_of(value: object) -> str | None:
    """The same for a list that has it in it."""
    lists = ((text, one) for text, one in _in_sight() if isinstance(one, list))
    return next((text for text, one in lists if any(item is value for item in one)), None)


def parameter_expressions(parameters: Sequence[torch.Tensor]) -> list[str] | None:
    """How each parameter can be written, by a variable or through a module; None if one of them cannot."""
    known: dict[int, str] = {}
    with no_torch_function():
        for text, value in _in_sight():
            if isinstance(value, torch.nn.Module):
                for path, parameter in value.named_parameters():
                    known.setdefault(id(parameter), f"{text}{_attributes(path)}")
            elif isinstance(value, torch.Tensor):
                known.setdefault(id(value), text)
    found = [known.get(id(parameter)) for parameter in parameters]
    return None if None in found else [text for text in found if text is not None]


def group_argument(axis: MeshAxis) -> str | None:
    """``, group=mesh.get_group("dp")`` for a call over ``axis`` where the program knows its group by that; empty for
    the group of all ranks, None where no name of it is in sight.
    """
    text = group_text(axis)
    root = re.match(r"\w*", text)
    if root is not None and any(name == root[0] for name, _ in _in_sight()):
        return f", group={text}"
    return "" if dist.is_initialized() and axis.size() == dist.get_world_size() else None


def ranks_of(group: str) -> str:
    """The call that gives the number of ranks of what ``group_argument`` says."""
    return f"dist.get_world_size({group.removeprefix(', ')})"


def wrapper_of(parameters: Sequence[torch.Tensor]) -> tuple[str, str] | None:
    """The variable that is DistributedDataParallel of these parameters, and how the program calls what it wraps."""
    wanted, known = {id(parameter) for parameter in parameters}, list(_in_sight())
    for text, value in known:
        if isinstance(value, DistributedDataParallel) and wanted <= {id(one) for one in value.parameters()}:
            inner = next((name for name, one in known if one is value.module), f"{text}.module")
            return text, inner
    return None


def tensors_of_expression(location: SourceLocation) -> Iterator[tuple[str, torch.Tensor]]:
    """The variables and attributes in an expression of the running function that are tensors, the longest first."""
    node, frame = node_at(location), user_frame(2)
    if node is None or frame is None or frame.f_code.co_filename != location.file:
        return
    for part in ast.walk(node):
        if isinstance(part, ast.Name | ast.Attribute):
            value = value_of(part, frame)
            if value is MISSING and isinstance(part, ast.Attribute) and part.attr == "grad":
                owner = value_of(part.value, frame)
                with no_torch_function():
                    value = owner.grad if isinstance(owner, torch.Tensor) else None
            if isinstance(value, torch.Tensor):
                yield text_of(location, part), value


def call_at(location: SourceLocation | None) -> ast.Call | None:
    """The call at a location; None if the source does not show it."""
    node = None if location is None else node_at(location)
    return node if isinstance(node, ast.Call) else None


def is_copied(location: SourceLocation | None, span: SourceLocation) -> bool:
    """Is the expression at ``span`` a copy that nobody else sees: ``x.clone()``?"""
    call = call_at(span)
    return location is not None and call is not None and callee(location, call) == "clone"


def callee(location: SourceLocation, call: ast.Call) -> str:
    """The last name of what is called, as ``all_reduce`` of ``dist.all_reduce(x)``."""
    return text_of(location, call.func).rpartition(".")[2]


def text_of(location: SourceLocation, node: ast.AST) -> str:
    """How the program writes an expression in the file of ``location``."""
    return source_of(node, location.file)


def node_text_is(location: SourceLocation, node: ast.expr, text: str) -> bool:
    """Does the program write an expression as ``text``? Quotes may be either."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return text == f'"{node.value}"'
    return text_of(location, node) == text


def is_size(location: SourceLocation, node: ast.expr) -> bool:
    """Does an expression look like the number of ranks?"""
    return _SIZES.search(text_of(location, node)) is not None


def keyword_of(call: ast.Call, name: str) -> ast.expr | None:
    """The value of a keyword argument."""
    return next((one.value for one in call.keywords if one.arg == name), None)


def _attributes(path: str) -> str:
    """``.layers[0].weight`` for the path of a parameter."""
    return "".join(f"[{part}]" if part.isdigit() else f".{part}" for part in path.split("."))


def running_function() -> FrameType | None:
    """The program's function that is running, around its comprehensions."""
    frame = user_frame(2)
    while frame is not None and frame.f_code.co_name in _COMPREHENSIONS:
        frame = frame.f_back
    return frame


def _in_sight() -> Iterator[tuple[str, object]]:
    """The variables of the program's running function, then the attributes of its first argument, then globals."""
    frame = running_function()
    if frame is None:
        return
    scope = {name: value for name, value in frame.f_locals.items() if name.isidentifier()}
    yield from scope.items()
    for name, value in scope.items():
        if name == "self":
            own = getattr(value, "__dict__", {})
            yield from ((f"self.{key}", one) for key, one in own.items() if key.isidentifier())
    if scope is not frame.f_globals:
        yield from ((name, value) for name, value in frame.f_globals.items() if name.isidentifier())
