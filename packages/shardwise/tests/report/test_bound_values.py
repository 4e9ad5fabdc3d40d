"""What statements bind: targets of every kind, parameters, what is returned, and what a call changes."""

from __future__ import annotations

import sys
import textwrap

import pytest

from shardwise.host.bound_values import MOST_TYPES, bindings_told, is_own_file, nothing_told


def integer(value):
    return str(value) if type(value) is int else None


def told(tmp_path, source, describe=integer):
    """Name, line and texts of what a program binds."""
    file = tmp_path / "program.py"
    file.write_text(textwrap.dedent(source))
    code = compile(file.read_text(), str(file), "exec")
    with bindings_told(describe) as bound:
        exec(code, {"__name__": "program"})
    return [(name, span.line, dict(counts)) for (name, span), counts in bound.counts.items()]


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("x = 1\n", [("x", 1, {"1": 1})]),
        ("x: int = 1\nx += 2\n", [("x", 1, {"1": 1}), ("x", 2, {"3": 1})]),
        ("a, (b, *c) = 1, (2, 3)\n", [("a", 1, {"1": 1}), ("b", 1, {"2": 1})]),
        ("for i in range(3):\n    j = i * 0\n", [("i", 1, {"0": 1, "1": 1, "2": 1}), ("j", 2, {"0": 3})]),
        ("x = (\n    1 +\n    2\n)\ny = 4\n", [("x", 1, {"3": 1}), ("y", 5, {"4": 1})]),
        ("if (n := 3) > 2:\n    pass\n", [("n", 1, {"3": 1})]),
        ("i = 0\nwhile i < 2:\n    i += 1\n", [("i", 1, {"0": 1}), ("i", 3, {"1": 1, "2": 1})]),
        (
            "def f(a, *, b=2):\n    return a + b\ny = f(1)\n",
            [("a", 1, {"1": 1}), ("b", 1, {"2": 1}), ("return", 2, {"3": 1}), ("y", 3, {"3": 1})],
        ),
        (
            "class A:\n    def __init__(self):\n        self.x = 1\na = A()\na.x = 2\n",
            [("self.x", 3, {"1": 1}), ("a.x", 5, {"2": 1})],
        ),
        ("try:\n    x = 1 / 0\nexcept ZeroDivisionError:\n    y = 1\n", [("y", 4, {"1": 1})]),
        ("x = [i for i in range(3)]\n", []),
        ("a = 1; b = 2\n", [("a", 1, {"1": 1}), ("b", 1, {"2": 1})]),
        ("if True: x = 3\n", [("x", 1, {"3": 1})]),
        ("def f():\n    for i in range(2):\n        pass\nf()\n", [("i", 2, {"0": 1, "1": 1})]),
        ("def f():\n    yield 1\n    x = 2\nfor i in f():\n    pass\n", [("i", 4, {"1": 1}), ("x", 3, {"2": 1})]),
    ],
)
def test_what_a_statement_binds_is_told_at_the_line_of_its_name(tmp_path, source, expected):
    assert told(tmp_path, source) == expected


def test_what_a_call_changes_is_told_and_what_it_leaves_alone_is_not(tmp_path):
    def length(value):
        return str(len(value)) if type(value) is list else None

    source = "xs = []\nxs.append(1)\nlen(xs)\nprint(xs, end='')\nxs[0] = 2\n"
    assert told(tmp_path, source, length) == [("xs", 1, {"0": 1}), ("xs", 2, {"1": 1})]


def grow(xs):
    xs.append(1)
    return xs


@pytest.mark.parametrize(
    ("statement", "changed"),
    [
        pytest.param("n = grow(xs)", [("xs", "1"), ("ys", "1"), ("n", "1")], id="assigned"),
        pytest.param("xs = grow(xs)", [("xs", "1"), ("ys", "1")], id="assigned to itself, under another name too"),
        pytest.param("later()", [("xs", "1"), ("ys", "1")], id="not mentioned"),
        pytest.param("if grow(xs): pass", [("xs", "1"), ("ys", "1")], id="in a condition"),
        pytest.param("[grow(x) for x in (xs,)]", [("xs", "1"), ("ys", "1")], id="in a comprehension"),
        pytest.param("grow(box.xs)", [("box.xs", "1")], id="an attribute"),
        pytest.param("grow(box.xs)[0] = grow(box.xs)[0] = 3", [("box.xs", "2")], id="once where it is named twice"),
        pytest.param("def f(a=len(xs)): grow(a)", [], id="a function that is only made"),
        pytest.param("ys = 3", [], id="another value, of no interest"),
    ],
)
def test_whatever_stands_for_something_else_after_a_statement_is_told_at_its_line(tmp_path, statement, changed):
    def length(value):
        return str(len(value)) if type(value) is list else None

    source = f"""
from types import SimpleNamespace
from test_bound_values import grow
xs = []
ys = xs
box = SimpleNamespace(xs=[])
def later(): grow(ys)
{statement}
"""
    sys.modules["test_bound_values"] = sys.modules[__name__]
    found = [(name, text) for name, line, texts in told(tmp_path, source, length) if line == 8 for text in texts]
    assert sorted(found) == sorted(changed)


def test_what_is_run_to_look_at_it_is_not_told(tmp_path):
    def looked_at(function):
        with nothing_told():
            return function(1) + function(2)

    file = tmp_path / "program.py"
    file.write_text("def f(x):\n    return x\ny = f(3)\nz = looked_at(f)\ny = f(4)\n")
    with bindings_told(integer) as bound:
        exec(compile(file.read_text(), str(file), "exec"), {"__name__": "program", "looked_at": looked_at})
    counts = {(name, span.line): dict(texts) for (name, span), texts in bound.counts.items()}
    assert counts[("x", 1)] == counts[("return", 2)] == {"3": 1, "4": 1}
    assert counts[("z", 4)] == {"3": 1}


def test_nothing_of_the_program_is_run_to_read_a_value(tmp_path):
    source = """
    class A:
        ran = []
        @property
        def x(self):
            self.ran.append(1)
            return 1
        @x.setter
        def x(self, value):
            pass
    a = A()
    a.x = 1
    count = len(A.ran)
    """
    assert told(tmp_path, source)[-1][2] == {"0": 1}


def test_more_types_than_are_told_apart_keep_their_number(tmp_path):
    ((_, _, counts),) = told(tmp_path, f"for i in range({MOST_TYPES + 5}):\n    pass\n")
    assert (len(counts), sum(counts.values())) == (MOST_TYPES, MOST_TYPES + 5)


def test_only_the_programs_own_files_are_traced_and_the_former_tracer_comes_back(tmp_path):
    assert is_own_file(str(tmp_path / "model.py"))
    assert not is_own_file(textwrap.__file__)
    assert not is_own_file(pytest.__file__)
    before = sys.gettrace()
    assert told(tmp_path, "import textwrap\nx = 1\ntextwrap.dedent(' a')\n") == [("x", 2, {"1": 1})]
    assert sys.gettrace() is before
