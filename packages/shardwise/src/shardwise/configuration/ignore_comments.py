"""Comments that hold findings back: ``# shardwise: ignore[SW113, SW110] reason``, on any line of the statement.

The header of a compound statement (``if ...:``) counts as a statement of its own. Blanks and capitals do not matter.
Asked of the source alone.
"""

from __future__ import annotations

import ast
import io
import linecache
import re
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass

from shardwise.diagnostics.source_location import SourceLocation

_MARK = re.compile(r"#\s*shardwise\s*:", re.IGNORECASE)
_COMMENT = re.compile(
    _MARK.pattern + r"\s*(?:ignore\b|(?P<verb>\w+)\s*(?=\[))\s*(?:\[(?P<codes>[^\]]*)\])?\s*(?P<reason>[^#]*)",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class IgnoreComment:
    """The words in a comment's brackets, why, and the first and last line that it is about (None: no statement).

    ``verb``  what stands before the brackets if that is not ``ignore``, so that nothing is held back.
    """

    location: SourceLocation
    words: tuple[str, ...]
    reason: str
    lines: tuple[int, int] | None
    verb: str = ""


_files: dict[str, tuple[list[str], tuple[IgnoreComment, ...]]] = {}


def comments_in(file: str) -> tuple[IgnoreComment, ...]:
    """The comments of a file, as ``linecache`` has it."""
    lines = linecache.getlines(file)
    known = _files.get(file)
    if known is None or known[0] != lines:
        known = _files[file] = (lines, tuple(_comments(file, "".join(lines))))
    return known[1]


def may_have_comments(text: str) -> bool:
    """Whether a source is worth looking through."""
    return _MARK.search(text) is not None


def _comments(file: str, text: str) -> Iterator[IgnoreComment]:
    if not may_have_comments(text):
        return
    try:
        tokens = list(tokenize.generate_tokens(io.StringIO(text).readline))
        spans = sorted((span(node) for node in statements(ast.parse(text))), key=lambda one: one[1] - one[0])
    except (SyntaxError, ValueError, RecursionError, tokenize.TokenError):
        return
    for token in tokens:
        found = _COMMENT.search(token.string) if token.type == tokenize.COMMENT else None
        if found is None:
            continue
        line, first = token.start[0], token.start[1] + found.start()
        column, end = (
            len(token.line[:at].encode())
            for at in (first, token.start[1] + len(found.group().rstrip()) + found.start())
        )
        words = tuple(word.strip() for word in (found["codes"] or "").split(",") if word.strip())
        about = next((one for one in spans if one[0] <= line <= one[1]), None)
        place = SourceLocation(file, line, line, column, end)
        yield IgnoreComment(place, words, found["reason"].strip(), about, found["verb"] or "")


def statements(tree: ast.Module) -> Iterator[ast.stmt]:
    """Every statement, at any depth."""
    return (node for node in ast.walk(tree) if isinstance(node, ast.stmt))


def span(node: ast.stmt) -> tuple[int, int]:
    """The first and last line of a statement; of a compound one, those of its header."""
    decorators = getattr(node, "decorator_list", [])
    first = min([node.lineno, *(one.lineno for one in decorators)])
    body = getattr(node, "body", None) or list(getattr(node, "cases", []))
    if not body:
        return first, node.end_lineno or node.lineno
    inner = body[0].pattern.lineno if isinstance(body[0], ast.match_case) else span(body[0])[0]
    return first, max(node.lineno, inner - 1)
