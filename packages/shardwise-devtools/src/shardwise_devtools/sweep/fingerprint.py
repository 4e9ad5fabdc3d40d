"""The state of the code that a report was made from: a fingerprint of everything that the sweep's verdicts follow from.

Comments, docstrings and annotations of functions do not count, so that better words make no report stale.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Mapping
from pathlib import Path

import shardwise
import shardwise_devtools

HOMES = (Path(shardwise.__file__).parent, Path(shardwise_devtools.__file__).parent)
APART = (
    *("shardwise/cli", "shardwise/collectives", "shardwise/diagnostics", "shardwise/host", "shardwise/planner"),
    *("shardwise/train", "shardwise/uniformity", "shardwise/verifier", "shardwise/worlds", "shardwise/zoo"),
    *("shardwise/configuration", "shardwise/drawing", "shardwise/notebook", "shardwise/report", "shardwise/rewriting"),
    *("shardwise/servers", "shardwise/testing"),
    *(f"shardwise/checker/{part}" for part in ("collectives", "diagnosis", "functions", "gradients", "patching")),
    *(
        "shardwise/checker/control_flow",
        "shardwise/checker/typing_rules",
        "shardwise_devtools/ecosystem",
        "shardwise_devtools/mutate",
        "shardwise_devtools/rules",
    ),
)
"""Folders that have no say in whether one operator's claim is made, or true. A new folder has one until it is here."""


def fingerprint(sources: Mapping[str, str] | None = None) -> str:
    """Sixteen hex digits; ``sources``: code by file name, ``deciding_sources()`` if left out."""
    digest = hashlib.sha256()
    for name, source in sorted((deciding_sources() if sources is None else sources).items()):
        tree = ast.parse(source)
        for node in ast.walk(tree):
            if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)) and ast.get_docstring(node) is not None:
                node.body = node.body[1:]
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                node.returns = None
            if isinstance(node, ast.arg):
                node.annotation = None
        digest.update(f"{name}\n{ast.dump(tree)}\n".encode())
    return digest.hexdigest()[:16]


def deciding_sources() -> dict[str, str]:
    """The code of every module that verdicts follow from, by its name under ``src``."""
    found = {}
    for home in HOMES:
        for path in home.rglob("*.py"):
            name = path.relative_to(home.parent).as_posix()
            if not name.startswith(tuple(f"{apart}/" for apart in APART)):
                found[name] = path.read_text("utf-8")
    return found
