"""Does the source tell a number that is logged from one that the program goes on by?"""

from __future__ import annotations

import linecache
import textwrap

import pytest

from shardwise.diagnostics.decisions import decides
from shardwise.diagnostics.source_location import SourceLocation

DECIDED = [
    "if READ > 0: pass",
    "while not READ: pass",
    "assert READ < 1, 'too large'",
    "y = 1 if abs(READ) > 2 else 0",
    "[row for row in rows if READ]",
    "for _ in range(READ): pass",
    "y = x[: READ]",
    "match READ:\n    case 1: pass",
    "n = READ\nprint(n)\nif n > 3: pass",
    "n = m = READ + 1\nfor _ in range(m): pass",
    "def f():\n    n = READ\n    while n: pass",
    "f = lambda x: 1 if READ else 2",
    "n = READ\nif n is not None and n > 3: pass",
    "n = READ\nif (n > 3) is True: pass",
]
NOT_DECIDED = [
    "print(READ)",
    "losses.append(READ)",
    "if step % 10 == 0: print(READ)",
    "y = READ if n else 0",
    "n = READ\nprint(n)\nif step: pass",
    "def f():\n    n = READ\ndef g(n):\n    if n: pass",
    "if n: pass\ndef f():\n    n = READ",
    "y = x[READ]",
    "for n in READ: pass",
    "if n is not None:\n    n = split(n, READ)",
    "n = READ\nif n is None or isinstance(n, int): pass",
]


def read_in(source: str) -> bool:
    """What is said about the expression ``READ``."""
    file = "<deciding>"
    lines = textwrap.dedent(source).splitlines(keepends=True)
    linecache.cache[file] = (len(source), None, lines, file)
    number, line = next((number, line) for number, line in enumerate(lines, 1) if "READ" in line)
    column = line.index("READ")
    try:
        return decides(SourceLocation(file, number, number, column, column + 4))
    finally:
        linecache.cache.pop(file)


@pytest.mark.parametrize("source", DECIDED)
def test_a_branch_a_loop_or_a_slice_depends_on_it(source):
    assert read_in(source)


@pytest.mark.parametrize("source", NOT_DECIDED)
def test_it_is_only_passed_on(source):
    assert not read_in(source)


def test_without_source_or_columns_nothing_is_said():
    assert not decides(SourceLocation("<no such file>", 1, 1, 0, 4))
    assert not decides(SourceLocation(__file__, 1))
