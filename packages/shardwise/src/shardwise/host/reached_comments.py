"""Which ignore comments of a program are reached? A file or cell that has any is run with marks before its statements.

A comment that nothing needs is told only where its statement ran; Python 3.11 has no cheaper way of knowing. Files
without such comments are run as they are.
"""

from __future__ import annotations

import ast
import builtins
import contextlib
import itertools
import linecache
from collections.abc import Iterator
from types import CodeType

from shardwise.configuration.ignore_comments import IgnoreComment, comments_in, may_have_comments, span
from shardwise.diagnostics.result import IgnoreSeen

from .attribute_patch import patched
from .number_calls import carry_numbers

_NAME = "__shardwise_reached__"


class ReachedComments:
    """The comments of what has been loaded, and whether their statements have been reached.

    ``name``  that of the builtin that the marks call.
    """

    def __init__(self, name: str = _NAME) -> None:
        self._name = name
        self._seen: list[IgnoreComment] = []
        self._ran: set[int] = set()

    def result(self) -> tuple[IgnoreSeen, ...]:
        return tuple(IgnoreSeen(one.location, number in self._ran) for number, one in enumerate(self._seen))

    def reach(self, number: int) -> None:
        """Statement ``number`` is about to run."""
        self._ran.add(number)

    def compiled(self, source: bytes, file: str) -> CodeType | None:
        """The code of a file with marks in it; None if it has no ignore comment, or is no Python."""
        if not may_have_comments(source.decode("latin-1")):  # any encoding: the mark is ASCII
            return None
        if file not in linecache.cache or len(linecache.cache[file]) == 1:
            linecache.checkcache(file)
        try:
            tree = ast.parse(source)
        except (SyntaxError, ValueError):
            return None
        self.mark(tree, file)
        carry_numbers(tree)
        return compile(ast.fix_missing_locations(tree), file, "exec", dont_inherit=True)

    def mark(self, tree: ast.AST, file: str) -> None:
        """Put marks into the tree of a file, whose text ``linecache`` has, before statements with comments."""
        comments = comments_in(file)
        known = {one.location for one in self._seen}
        self._seen += [one for one in comments if one.location not in known]
        numbers: dict[tuple[int, int], list[int]] = {}
        for number, one in enumerate(self._seen):
            if one.location.file == file and one.lines is not None:
                numbers.setdefault(one.lines, []).append(number)
        for node in ast.walk(tree):
            for part in ("body", "orelse", "finalbody"):
                body = getattr(node, part, None)
                if isinstance(body, list):
                    marked = (one for statement in body for one in self._marked(statement, body, numbers))
                    setattr(node, part, list(marked))

    def _marked(
        self, statement: ast.stmt, body: list[ast.stmt], numbers: dict[tuple[int, int], list[int]]
    ) -> Iterator[ast.stmt]:
        is_text = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
        is_future = isinstance(statement, ast.ImportFrom) and statement.module == "__future__"
        if not is_future and not (is_text and statement is body[0]):
            for number in numbers.get(span(statement), ()):
                call = ast.Call(ast.Name(self._name, ast.Load()), [ast.Constant(number)], [])
                yield ast.copy_location(ast.Expr(call), statement)
        yield statement


class _Active:
    comments: ReachedComments | None = None


def active() -> ReachedComments | None:
    """What gathers comments now, if anything does."""
    return _Active.comments


@contextlib.contextmanager
def noting_comments() -> Iterator[ReachedComments]:
    """Inside the block the comments of every file that is loaded are gathered."""
    gathered = ReachedComments()
    with patched(_Active, "comments", gathered), patched(builtins, _NAME, gathered.reach):
        yield gathered


def noting_for_good() -> ReachedComments:
    """Comments of what may run again after the block that it was made in, as a function of a notebook's cell does."""
    name = f"{_NAME}{next(_cells)}"
    gathered = ReachedComments(name)
    setattr(builtins, name, gathered.reach)
    return gathered


_cells = itertools.count(1)
