"""What the statements of a program bind: each name that one assigns, with a text for its value.

A trace function, as debuggers have one, hears which line of the program's own files comes next; when a statement is
done, the names that it assigns are read, as are parameters when a function is entered and the value when it returns.
What a name stands for may change without being assigned, as a tensor that is reduced in place: what a statement
mentions is read before and after it, and what the frame has told already is read again after every call.

Nothing of the program's is run for it, and nothing is decided by it: this is for people who read the program beside
what its values are. While nobody asks there is no trace function.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import inspect
import linecache
import os
import site
import sys
import sysconfig
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import FrameType
from typing import Any

from shardwise.diagnostics.operands import MISSING, value_of
from shardwise.diagnostics.source import is_internal
from shardwise.diagnostics.source_location import SourceLocation
from shardwise.diagnostics.syntax import span_of

MOST_TYPES = 32
"""Texts that are told apart under one name; the rest counts for the last of them."""
RETURNED = "return"
_RESUMED = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
_COMPREHENSIONS = ("<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>")
_ELSEWHERE = (ast.stmt, ast.Lambda, ast.match_case, ast.excepthandler, ast.JoinedStr)
"""What is executed at another time than the statement that it stands in, and what only makes a text."""


@dataclass(frozen=True, slots=True)
class _Name:
    expression: ast.expr
    text: str
    location: SourceLocation


@dataclass(frozen=True, slots=True, eq=False)
class _Statement:
    """``first`` to ``last`` are its lines, of a compound statement those of its head.

    ``targets``   what it assigns; ``changed``: what it may change, which is told if its text is another one after it.
    ``at``        where other names are told that stand for something else after it; None if it cannot bring that about.
    ``returned``  where the value that it returns is told.
    ``body``      the lines of a loop, which has assigned its target only where one of these comes next.
    """

    first: int
    last: int
    targets: tuple[_Name, ...]
    at: SourceLocation | None = None
    changed: tuple[_Name, ...] = ()
    returned: SourceLocation | None = None
    body: range | None = None


@dataclass(frozen=True, slots=True)
class _Source:
    """The statements of a file by line, and the parameters of its functions by first line and name."""

    statements: dict[int, _Statement]
    parameters: dict[tuple[int, str], tuple[_Name, ...]]


@dataclass
class BoundValues:
    """Texts of values by name and span, each with the number of times."""

    counts: dict[tuple[str, SourceLocation], Counter[str]]

    def tell(self, name: _Name, text: str) -> None:
        """``name`` has been bound to something that reads ``text``."""
        counts = self.counts.setdefault((name.text, name.location), Counter())
        known = text in counts or len(counts) < MOST_TYPES
        counts[text if known else next(reversed(counts))] += 1


@contextlib.contextmanager
def bindings_told(describe: Callable[[object], str | None]) -> Iterator[BoundValues]:
    """What the program binds inside the block, on this thread; ``describe`` gives the text of a value, None for most.

    A debugger or a measurement of coverage that traces this thread does not see the block.
    """
    bound = BoundValues({})
    before = sys.gettrace()
    sys.settrace(_Tracer(bound, describe).entered)
    try:
        yield bound
    finally:
        sys.settrace(before)


@contextlib.contextmanager
def nothing_told() -> Iterator[None]:
    """What functions of the program bind inside the block is not told: they are run to look at them."""
    before = sys.gettrace()
    ours = isinstance(getattr(before, "__self__", None), _Tracer)
    if ours:
        sys.settrace(None)
    try:
        yield
    finally:
        if ours:
            sys.settrace(before)


class _Tracer:
    def __init__(self, bound: BoundValues, describe: Callable[[object], str | None]) -> None:
        self.bound = bound
        self.describe = describe
        self._sources: dict[str, _Source | None] = {}

    def entered(self, frame: FrameType, event: str, argument: object) -> Any:
        """Called with every frame that begins: None if it is not the program's own."""
        # Most frames are torch's: they cost one look into a dictionary.
        source = self._sources.get(frame.f_code.co_filename, MISSING)
        if source is None:
            return None
        code = frame.f_code
        if source is MISSING:
            file = code.co_filename
            own = is_own_file(file) and not is_internal(code)
            source = self._sources[file] = _source(file) if own else None
        if source is None or code.co_name in _COMPREHENSIONS:
            return None
        begun = _Frame(self, source)
        if not code.co_flags & _RESUMED:
            for name in source.parameters.get((code.co_firstlineno, code.co_name), ()):
                begun.tell(name, self.text(name, frame))
        return begun.heard

    def text(self, name: _Name, frame: FrameType) -> str | None:
        value = value_of(name.expression, frame)
        return None if value is MISSING else self.describe(value)


class _Frame:
    """One frame of the program: the statement that it executes, and the last texts of the names that it has told."""

    def __init__(self, tracer: _Tracer, source: _Source) -> None:
        self._tracer = tracer
        self._source = source
        self._statement: _Statement | None = None
        self._before: list[str | None] = []
        self._told: dict[str, tuple[_Name, str]] = {}

    def tell(self, name: _Name, text: str | None) -> None:
        """``name`` stands for something that reads ``text`` now; None is of no interest."""
        if text is None:
            self._told.pop(name.text, None)
            return
        self._tracer.bound.tell(name, text)
        self._told[name.text] = name, text

    def heard(self, frame: FrameType, event: str, argument: object) -> object:
        """A line is about to be executed, or the frame is about to be left."""
        if event == "line":
            statement = self._source.statements.get(frame.f_lineno)
            if statement is None or statement is not self._statement or frame.f_lineno == statement.first:
                self._done(frame)
                self._statement = statement
                changed = statement.changed if statement is not None else ()
                self._before = [self._tracer.text(name, frame) for name in changed]
        elif event == "return":
            statement, tracer = self._statement, self._tracer
            if statement is not None and statement.returned is not None:
                self.tell(_Name(ast.Name(RETURNED), RETURNED, statement.returned), tracer.describe(argument))
            else:
                self._done(frame)
        elif event == "exception":
            self._statement = None  # what it was to assign, it has not
        return self.heard

    def _done(self, frame: FrameType) -> None:
        statement, tracer = self._statement, self._tracer
        if statement is None or (statement.body is not None and frame.f_lineno not in statement.body):
            return
        for name in statement.targets:
            self.tell(name, tracer.text(name, frame))
        for name, before in zip(statement.changed, self._before, strict=True):
            after = tracer.text(name, frame)
            if after != before:
                self.tell(name, after)
        if statement.at is not None:
            for name, before in [*self._told.values()]:
                after = tracer.text(name, frame)
                if after != before:
                    self.tell(_Name(name.expression, name.text, statement.at), after)


@functools.cache
def is_own_file(file: str) -> bool:
    """Does the file belong to the program and its project, and not to Python or an installed package?"""
    if file.startswith("<") or {"site-packages", "dist-packages"} & set(file.split(os.sep)):
        return False
    folders = [sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib"), *site.getsitepackages()]
    return not any(os.path.abspath(file).startswith(folder + os.sep) for folder in folders if folder)


@functools.cache
def _source(file: str) -> _Source | None:
    try:
        tree = ast.parse("".join(linecache.getlines(file)))
    except (SyntaxError, ValueError, RecursionError):
        return None
    statements: dict[int, _Statement] = {}
    parameters: dict[tuple[int, str], tuple[_Name, ...]] = {}
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            line = min((one.lineno for one in node.decorator_list), default=node.lineno)
            parameters[line, node.name] = tuple(_parameters(node.args, file, node.name))
        if isinstance(node, ast.stmt) and not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            statement = _statement(node, file)
            for line in range(statement.first, statement.last + 1):
                known = statements.get(line)
                statements[line] = statement if known is None else _beside(known, statement)
    return _Source(statements, parameters)


def _beside(one: _Statement, other: _Statement) -> _Statement:
    """Two statements on one line, as ``a = 1; b = 2``, or the head of a compound one and what stands behind it."""
    return _Statement(
        min(one.first, other.first),
        max(one.last, other.last),
        (*one.targets, *other.targets),
        one.at or other.at,
        (*one.changed, *other.changed),
        one.returned or other.returned,
    )


def _parameters(arguments: ast.arguments, file: str, function: str) -> Iterator[_Name]:
    for one in (*arguments.posonlyargs, *arguments.args, arguments.vararg, *arguments.kwonlyargs, arguments.kwarg):
        if one is not None and one.arg != "self":
            span = SourceLocation(file, one.lineno, one.lineno, one.col_offset, one.col_offset + len(one.arg.encode()))
            yield _Name(ast.Name(one.arg), one.arg, span)


def _statement(node: ast.stmt, file: str) -> _Statement:
    body = getattr(node, "body", None)
    last = node.end_lineno or node.lineno
    if isinstance(body, list) and body:
        last = max(node.lineno, body[0].lineno - 1)
    elif isinstance(node, ast.Match):
        last = node.subject.end_lineno or node.lineno
    targets: list[ast.expr] = []
    if isinstance(node, ast.Assign):
        targets = [*node.targets]
    elif isinstance(node, (ast.AnnAssign, ast.AugAssign, ast.For, ast.AsyncFor)):
        targets = [node.target]
    elif isinstance(node, (ast.With, ast.AsyncWith)):
        targets = [item.optional_vars for item in node.items if item.optional_vars is not None]
    names = [leaf for target in targets for leaf in _leaves(target)]
    changed = [one.value for one in names if isinstance(one, ast.Subscript)]
    names += _walrus(node)
    calls = any(isinstance(one, (ast.Call, ast.Await)) for one in _evaluated(node))
    if calls and not isinstance(node, ast.Return):
        changed += _mentioned(node)
    bound = [_name(one, file) for one in names if isinstance(one, (ast.Name, ast.Attribute))]
    known = {one.text for one in bound}
    mentioned = {one.text: one for one in map(functools.partial(_name, file=file), reversed(changed))}
    returned = None
    if isinstance(node, ast.Return) and node.value is not None:
        returned = SourceLocation(
            file, node.lineno, node.lineno, node.col_offset, node.col_offset + len(RETURNED.encode())
        )
    return _Statement(
        node.lineno,
        last,
        tuple(bound),
        _span(node, file) if calls or changed else None,
        tuple(one for text, one in mentioned.items() if text not in known),
        returned,
        range(last + 1, (node.end_lineno or last) + 1) if isinstance(node, (ast.For, ast.AsyncFor)) else None,
    )


def _evaluated(node: ast.AST) -> Iterator[ast.AST]:
    """All expressions of a statement or an expression, without statements inside it and functions that it makes."""
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, _ELSEWHERE):
            yield child
            yield from _evaluated(child)


def _mentioned(node: ast.AST) -> Iterator[ast.expr]:
    """Names and attribute chains that are evaluated; of what is called, as ``x.add_``, that whose method it is."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (ast.Name, ast.Attribute)) and not isinstance(child.ctx, ast.Load):
            continue
        if isinstance(node, ast.Call) and child is node.func:
            if isinstance(child, ast.Name):
                continue
            child = child.value if isinstance(child, ast.Attribute) else child
        if isinstance(child, ast.Name) or (isinstance(child, ast.Attribute) and _is_chain(child)):
            yield child
        elif not isinstance(child, _ELSEWHERE):
            yield from _mentioned(child)


def _is_chain(one: ast.expr) -> bool:
    while isinstance(one, ast.Attribute):
        one = one.value
    return isinstance(one, ast.Name)


def _span(node: ast.stmt, file: str) -> SourceLocation:
    """Where the statement stands, of a compound one its head."""
    ends = [(one.end_lineno or 0, one.end_col_offset or 0) for one in _evaluated(node) if isinstance(one, ast.expr)]
    end_line, end_column = max(ends, default=(node.lineno, node.col_offset))
    return SourceLocation(file, node.lineno, end_line, node.col_offset, end_column)


def _leaves(target: ast.expr) -> Iterator[ast.expr]:
    if isinstance(target, (ast.Tuple, ast.List)):
        for item in target.elts:
            yield from _leaves(item)
    elif isinstance(target, ast.Starred):
        yield from _leaves(target.value)
    else:
        yield target


def _walrus(node: ast.stmt) -> list[ast.expr]:
    """What ``:=`` binds in the statement itself, not in those inside it."""
    return [one.target for one in _evaluated(node) if isinstance(one, ast.NamedExpr)]


def _name(expression: ast.expr, file: str) -> _Name:
    line, end_line, column, end_column = span_of(expression)
    return _Name(expression, ast.unparse(expression), SourceLocation(file, line, end_line, column, end_column))
