"""Signatures say what they take and give: ``Any`` stands where PyTorch says no more, and its count does not grow."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from .source_trees import MODULES, READ_TOGETHER, nodes

pytestmark = READ_TOGETHER
CEILING = 299
"""Annotations of parameters and results that contain ``Any``. Lower it when there are fewer."""


def signature_annotations(source: str) -> Iterator[ast.expr]:
    """The annotations of all parameters and results of the functions in ``source``."""
    for node in nodes(source):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            given = node.args
            parameters = (*given.posonlyargs, *given.args, *given.kwonlyargs, given.vararg, given.kwarg)
            yield from (one.annotation for one in parameters if one is not None and one.annotation is not None)
            if node.returns is not None:
                yield node.returns


def says_any(annotation: ast.expr) -> bool:
    return any(isinstance(node, ast.Name) and node.id == "Any" for node in ast.walk(annotation))


def test_any_in_a_signature_is_counted_wherever_it_stands():
    source = "def f(a: Any, *b: int, c: list[Any] = [], **d: str) -> dict[str, Any]: ..."
    assert [says_any(one) for one in signature_annotations(source)] == [True, True, False, False, True]


def test_no_more_signatures_say_any():
    found = [
        f"{path}:{annotation.lineno} {ast.unparse(annotation)}"
        for path in MODULES.values()
        for annotation in signature_annotations(path.read_text("utf-8"))
        if says_any(annotation)
    ]
    assert len(found) <= CEILING, "\n".join(found)
