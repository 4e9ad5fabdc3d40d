"""Which state of the registry was a report made from? A fingerprint of everything that a verdict follows from.

It is made from the code of ``shardwise.op_rules`` without comments and docstrings, so that better words do not make a
report stale.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Mapping
from pathlib import Path

from shardwise import op_rules

ROOM = Path(op_rules.__file__).parent


def fingerprint(sources: Mapping[str, str] | None = None) -> str:
    """Sixteen hex digits; ``sources``: the modules' code by name, the room's own if left out."""
    digest = hashlib.sha256()
    for name, source in sorted((room_sources() if sources is None else sources).items()):
        tree = ast.parse(source)
        for node in ast.walk(tree):
            if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)) and ast.get_docstring(node) is not None:
                node.body = node.body[1:]
        digest.update(f"{name}\n{ast.dump(tree)}\n".encode())
    return digest.hexdigest()[:16]


def room_sources() -> dict[str, str]:
    """The code of every module of the room."""
    return {str(path.relative_to(ROOM)): path.read_text("utf-8") for path in ROOM.rglob("*.py")}
