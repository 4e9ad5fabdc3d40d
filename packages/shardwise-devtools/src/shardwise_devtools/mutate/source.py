"""Where in a program's text does each expression stand, and what is the text with one of them replaced?

Edits splice text, so a mutant differs from its program in nothing but the mistake.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Edit:
    """``text`` takes the place of what stands between two offsets, in UTF-8 bytes as the parser counts them."""

    start: int
    end: int
    text: str


@dataclass(frozen=True)
class Source:
    """One file of a program."""

    path: Path
    text: str

    @functools.cached_property
    def tree(self) -> ast.Module:
        """SyntaxError if the file does not parse."""
        return ast.parse(self.text, str(self.path))

    @functools.cached_property
    def parents(self) -> dict[ast.AST, ast.AST]:
        return {child: node for node in ast.walk(self.tree) for child in ast.iter_child_nodes(node)}

    @functools.cached_property
    def _bytes(self) -> bytes:
        return self.text.encode()

    @functools.cached_property
    def _lines(self) -> list[int]:
        """Where each line starts; the parser ends lines at newlines only."""
        starts = [0]
        for line in self._bytes.split(b"\n"):
            starts.append(starts[-1] + len(line) + 1)
        return starts

    def span(self, node: ast.expr | ast.stmt) -> tuple[int, int]:
        """Where ``node`` starts and ends, in bytes."""
        assert node.end_lineno is not None, "parsed nodes have an end"
        assert node.end_col_offset is not None, "parsed nodes have an end"
        return (
            self._lines[node.lineno - 1] + node.col_offset,
            self._lines[node.end_lineno - 1] + node.end_col_offset,
        )

    def segment(self, node: ast.expr | ast.stmt) -> str:
        """The text of ``node``, as it stands."""
        start, end = self.span(node)
        return self._bytes[start:end].decode()

    def replace(self, node: ast.expr | ast.stmt, text: str) -> Edit:
        return Edit(*self.span(node), text)

    def edited(self, edits: Sequence[Edit]) -> str:
        """The text after ``edits``, which do not overlap."""
        made, at = [], 0
        for edit in sorted(edits, key=lambda edit: edit.start):
            assert at <= edit.start, "edits do not overlap"
            made += [self._bytes[at : edit.start], edit.text.encode()]
            at = edit.end
        return b"".join([*made, self._bytes[at:]]).decode()

    def around(self, node: ast.AST) -> Iterator[ast.AST]:
        """The nodes that contain ``node``, innermost first."""
        while (parent := self.parents.get(node)) is not None:
            yield parent
            node = parent
