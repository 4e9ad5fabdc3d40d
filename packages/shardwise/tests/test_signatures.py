"""Signatures say what they take and give: ``Any`` stands where PyTorch says no more, and its count does not grow."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import shardwise

CEILING = 299
"""Annotations of parameters and results that contain ``Any``. Lower it when there are fewer."""


def signature_annotations(tree: ast.AST) -> Iterator[ast.expr]:
    """The annotations of all parameters and results of the functions in ``tree``."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            given = node.args
            parameters = (*given.posonlyargs, *given.args, *given.kwonlyargs, given.vararg, given.kwarg)
            yield from (one.annotation for one in parameters if one is not None and one.annotation is not None)
            if node.returns is not None:
                yield node.returns


def says_any(annotation: ast.expr) -> bool:
    return any(isinstance(node, ast.Name) and node.id == "Any" for node in ast.walk(annotation))


def test_any_in_a_signature_is_counted_wherever_it_stands():
    tree = ast.parse("def f(a: Any, *b: int, c: list[Any] = [], **d: str) -> dict[str, Any]: ...")
    assert [says_any(one) for one in signature_annotations(tree)] == [True, True, False, False, True]


def test_no_more_signatures_say_any():
    found = [
        f"{path}:{annotation.lineno} {ast.unparse(annotation)}"
        for path in sorted(Path(shardwise.__file__).parent.rglob("*.py"))
        for annotation in signature_annotations(ast.parse(path.read_text("utf-8")))
        if says_any(annotation)
    ]
    assert len(found) <= CEILING, "\n".join(found)
