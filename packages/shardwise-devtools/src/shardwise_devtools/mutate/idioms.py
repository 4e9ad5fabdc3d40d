"""Which calls of a program communicate, coerce or declare? Recognised by how they are written, as a reader would.

A typed call has the name of a collective or coercion and says ``src=`` or ``dst=``; a raw one has the name of a
function of torch.distributed. A function of the program that returns a typed call is one itself (``self.leave(x)``):
its callers can forget it as easily.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable

from .source import Source

COERCIONS = frozenset({"convert", "reinterpret", "redistribute", "shard", "unshard", "invariant_to_replicate"})
TYPED = COERCIONS | {"all_reduce", "all_gather", "reduce_scatter", "all_to_all"}
RAW = frozenset(
    {"all_reduce", "broadcast", "reduce", "all_gather", "reduce_scatter", "all_to_all"}
    | {"all_gather_into_tensor", "reduce_scatter_tensor", "all_to_all_single"}
)
PARTIAL = frozenset({"linear", "einsum", "matmul", "sum", "mean"})
MESSAGES = frozenset({"send", "recv", "isend", "irecv", "receive", "P2POp"})
DECLARATIONS = frozenset(
    {"assert_type", "assert_local_type", "assert_type_like", "assert_local_type_like", "mutate_type"}
    | {"local_map", "Scalar"}
)
PLACEMENTS = ("R", "I", "V", "P")


def name_of(call: ast.AST) -> str:
    """The last name of what is called; empty if that has none."""
    if not isinstance(call, ast.Call):
        return ""
    function = call.func
    return (
        function.attr if isinstance(function, ast.Attribute) else function.id if isinstance(function, ast.Name) else ""
    )


def keyword(call: ast.Call, *names: str) -> ast.keyword | None:
    return next((one for one in call.keywords if one.arg in names), None)


def is_typed(node: ast.AST) -> bool:
    """A collective or coercion with its transition, of at least one tensor."""
    if not isinstance(node, ast.Call) or name_of(node) not in TYPED or not node.args:
        return False
    return keyword(node, "src", "dst") is not None or name_of(node) == "invariant_to_replicate"


def is_raw(node: ast.AST) -> bool:
    """A collective of torch.distributed that works in place, standing alone as a statement."""
    return isinstance(node, ast.Call) and name_of(node) in RAW and bool(node.args) and not is_typed(node)


def is_partial(node: ast.AST) -> bool:
    """A sum or contraction that names its partial axes."""
    return (
        isinstance(node, ast.Call)
        and name_of(node) in PARTIAL
        and keyword(node, "out_partial_axes", "src", "dst") is not None
    )


def is_message(node: ast.AST) -> bool:
    """Sends to a rank, or receives from one."""
    return isinstance(node, ast.Call) and name_of(node) in MESSAGES and len(node.args) + len(node.keywords) > 1


def messengers(sources: Iterable[Source]) -> frozenset[str]:
    """Functions of the program that hand back what a message brought, called by their names or by their classes.

    Those that only have a message on their way, as the stages of a pipeline, are left out.
    """
    functions = [
        (source, node) for source in sources for node in ast.walk(source.tree) if isinstance(node, ast.FunctionDef)
    ]
    found = {node.name for _, node in functions if _receives(node)}
    while True:
        further = {node.name for _, node in functions if _hands_on(node, found)} - found
        if not further:
            return frozenset(found - {"forward", "backward", "__call__", "receive", "send"})
        found |= further


def _receives(function: ast.FunctionDef) -> bool:
    """What is given back is a buffer that ``function`` has let a message fill."""
    filled = {
        one.id
        for call in ast.walk(function)
        if is_message(call) and isinstance(call, ast.Call)
        for one in call.args[:2]
        if isinstance(one, ast.Name)
    }
    returned = [node.value for node in ast.walk(function) if isinstance(node, ast.Return)]
    return any(isinstance(one, ast.Name) and one.id in filled for one in returned)


def _hands_on(function: ast.FunctionDef, found: set[str]) -> bool:
    """It returns what such a function, or the autograd function around one, gave back."""
    named = {
        target.id: node.value
        for node in ast.walk(function)
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
        if isinstance(target, ast.Name)
    }
    for node in ast.walk(function):
        if isinstance(node, ast.Return) and node.value is not None:
            value = named.get(node.value.id, node.value) if isinstance(node.value, ast.Name) else node.value
            value = value.elts[0] if isinstance(value, ast.Tuple) and value.elts else value
            if name_of(value) in found or (name_of(value) == "apply" and "forward" in found):
                return True
    return False


def wrappers(sources: Iterable[Source]) -> frozenset[str]:
    """Functions of the program that hand back what a typed call made of their own first operand.

    Those with a name of torch's are left out: their callers mean something else.
    """
    found = set()
    for source in sources:
        for node in ast.walk(source.tree):
            if isinstance(node, ast.FunctionDef):
                first = _first_operand(node)
                if first and any(_returns_typed(statement, first) for statement in ast.walk(node)):
                    found.add(node.name)
    return frozenset(found - {"forward", "backward", "__call__"})


def _first_operand(function: ast.FunctionDef) -> str:
    names = [arg.arg for arg in function.args.args if arg.arg not in ("self", "cls", "ctx")]
    return names[0] if names else ""


def _returns_typed(statement: ast.AST, first: str) -> bool:
    if not isinstance(statement, ast.Return) or not is_typed(statement.value or statement):
        return False
    operand = statement.value.args[0] if isinstance(statement.value, ast.Call) else None
    return isinstance(operand, ast.Name) and operand.id == first


def is_declaration(source: Source, node: ast.AST) -> bool:
    """``node`` stands in a promise about types, which is no behaviour: an annotation, an edge of a local region."""
    return any(name_of(parent) in DECLARATIONS for parent in (node, *source.around(node)))
