"""Annotations written into source: statements are added, and nothing else of a file changes.

A parameter is annotated behind the statement that binds the name by which it is reached, or behind what fills it; what
a module has itself, at the end of its ``__init__``. An input is annotated behind what binds its name: an assignment, or
the head of a loop or a function, and where it has no name in the call itself.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import libcst as cst
from libcst.metadata import CodeRange, MetadataWrapper, PositionProvider

from shardwise.rewriting.file_edit import FileEdit, read_source
from shardwise.rewriting.spelling import Spelling

from ..records.annotation_sites import Held, Place
from .annotations import Annotation

WIDTH = 100
Block = cst.IndentedBlock | cst.Module


def file_edits(annotations: Sequence[Annotation]) -> tuple[list[FileEdit], list[Annotation]]:
    """The files that the annotations change, and the annotations for which no place was found."""
    by_file: dict[str, list[Annotation]] = defaultdict(list)
    for annotation in annotations:
        by_file[annotation.place.file].append(annotation)
    edits: list[FileEdit] = []
    missed: list[Annotation] = []
    for file, own in by_file.items():
        path = Path(file)
        before = read_source(path)
        edited = with_annotations(before, own)
        missed += edited.missed
        if edited.text != before:
            edits.append(FileEdit(path, before, edited.text))
    return edits, missed


class CannotPlace(Exception):
    """The source has no statement where an annotation could stand."""


@dataclass(frozen=True)
class EditedSource:
    """``text`` is the new source; ``missed`` are the annotations for which no place was found."""

    text: str
    missed: tuple[Annotation, ...]


def with_annotations(source: str, annotations: Sequence[Annotation]) -> EditedSource:
    """``source`` with ``annotations`` and the imports that they need."""
    try:
        wrapper = MetadataWrapper(cst.parse_module(source))
    except cst.ParserSyntaxError:  # Python reads tabs after spaces in one indentation
        return EditedSource(source, tuple(annotations))
    layout = _Layout(wrapper.module, wrapper.resolve(PositionProvider))
    spelling = Spelling.of(wrapper.module, ("R", "I", "S", "P", "V", "assert_type"))
    edits = _Edits(spelling)
    missed: list[Annotation] = []
    for annotation in annotations:
        try:
            edits.add(annotation, layout)
        except CannotPlace:
            missed.append(annotation)
    if not edits.is_empty:
        return EditedSource(spelling.imported(wrapper.module.visit(edits).code), tuple(missed))
    return EditedSource(source, tuple(missed))


class _Layout:
    """Where the statements of a file are: blocks, the statements in them, and what they bind."""

    def __init__(self, module: cst.Module, ranges: Mapping[cst.CSTNode, CodeRange]) -> None:
        self.module = module
        self._ranges = ranges
        self.functions = _Functions(self)
        module.visit(self.functions)

    def lines(self, node: cst.CSTNode) -> CodeRange:
        return self._ranges[node]

    def contains(self, node: cst.CSTNode, line: int) -> bool:
        lines = self.lines(node)
        return lines.start.line <= line <= lines.end.line

    def scope(self, place: Place) -> tuple[cst.FunctionDef | None, Block]:
        """The function at ``place`` and its body; for the top of a file the module."""
        if not place.function:
            return None, self.module
        for function, starts in self.functions.found:
            here = function.name.value == place.function and place.start in starts
            if here and isinstance(function.body, cst.IndentedBlock):
                return function, function.body
        raise CannotPlace

    def chain(self, block: Block, line: int) -> list[tuple[Block, int]]:
        """The blocks around ``line``, outermost first, each with the number of the statement there."""
        for at, statement in enumerate(block.body):
            if self.contains(statement, line):
                inner = next((one for one in _blocks(statement) if one.body and self._reaches(one, line)), None)
                return [(block, at), *(self.chain(inner, line) if inner is not None else [])]
        return []

    def _reaches(self, block: cst.IndentedBlock, line: int) -> bool:
        return self.contains(block.body[0], line) or (
            self.lines(block.body[0]).start.line <= line <= self.lines(block.body[-1]).end.line
        )

    def bindings(self, block: Block, name: str) -> Iterator[tuple[cst.CSTNode, list[tuple[Block, int]]]]:
        """The statements that bind ``name``, in order, with the blocks around them; no inner functions."""
        for at, statement in enumerate(block.body):
            if isinstance(statement, (cst.FunctionDef, cst.ClassDef)):
                continue
            if _binds(statement, name):
                yield statement, [(block, at)]
            for inner in _blocks(statement):
                for node, chain in self.bindings(inner, name):
                    yield node, [(block, at), *chain]


class _Functions(cst.CSTVisitor):
    def __init__(self, layout: _Layout) -> None:
        self.found: list[tuple[cst.FunctionDef, set[int]]] = []
        self._layout = layout

    def visit_FunctionDef(self, node: cst.FunctionDef) -> None:
        first = [self._layout.lines(one).start.line for one in node.decorators[:1]]
        self.found.append((node, {self._layout.lines(node).start.line, *first}))


def _blocks(statement: cst.CSTNode) -> list[cst.IndentedBlock]:
    """The blocks of a compound statement, with those of its else, except and finally."""
    if isinstance(statement, (cst.FunctionDef, cst.ClassDef)):
        return []
    found: list[cst.IndentedBlock] = []
    for child in statement.children:
        if isinstance(child, cst.IndentedBlock):
            found.append(child)
        elif isinstance(child, (cst.Else, cst.If, cst.ExceptHandler, cst.Finally, cst.MatchCase)):
            found += _blocks(child)
    return found


def _binds(statement: cst.CSTNode, name: str) -> bool:
    if isinstance(statement, cst.SimpleStatementLine):
        return any(_assigns(small, name) for small in statement.body)
    if isinstance(statement, cst.For):
        return name in _names(statement.target)
    if isinstance(statement, cst.With):
        return any(item.asname is not None and name in _names(item.asname.name) for item in statement.items)
    return False


def _assigns(small: cst.CSTNode, name: str) -> bool:
    if isinstance(small, cst.Assign):
        return any(name in _names(target.target) for target in small.targets)
    if isinstance(small, (cst.AnnAssign, cst.AugAssign)):
        return small.target is not None and name in _names(small.target)
    return False


def _names(target: cst.CSTNode) -> set[str]:
    if isinstance(target, cst.Name):
        return {target.value}
    if isinstance(target, (cst.Tuple, cst.List)):
        return {name for element in target.elements for name in _names(element.value)}
    return set()


class _Edits(cst.CSTTransformer):
    """What is added: statements by block and position, 0 for its start, and arguments that get wrapped."""

    def __init__(self, spelling: Spelling) -> None:
        super().__init__()
        self._spelling = spelling
        self._statements: dict[tuple[cst.CSTNode, int], list[cst.BaseStatement]] = defaultdict(list)
        self._arguments: dict[cst.CSTNode, list[tuple[int, Annotation]]] = defaultdict(list)

    @property
    def is_empty(self) -> bool:
        return not self._statements and not self._arguments

    def add(self, annotation: Annotation, layout: _Layout) -> None:
        """Errors: CannotPlace."""
        if annotation.is_input and not annotation.expressions:
            self._wrap(annotation, layout)
            return
        function, body = layout.scope(annotation.place)
        find = _place_of_input if annotation.is_input else _place_of_parameter
        block, at = find(annotation, layout, function, body)
        if any(_is_bound_later(key, layout, body, block, at) for key, _ in annotation.type):
            raise CannotPlace
        if annotation.unwrapped and _is_bound_again(annotation, layout, body, block, at):
            annotation = replace(annotation, expressions=annotation.unwrapped)
        self._statements[block, at].append(cst.parse_statement(_statement(self._spelling, annotation)))

    def _wrap(self, annotation: Annotation, layout: _Layout) -> None:
        assert annotation.call is not None, "an input without a name is known by the call that it is given to"
        calls = _Calls(layout, annotation.call)
        layout.module.visit(calls)
        if calls.found is None or annotation.argument >= len(calls.found.args):
            raise CannotPlace
        if calls.found.args[annotation.argument].star:
            raise CannotPlace
        self._arguments[calls.found].append((annotation.argument, annotation))

    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.Call:
        args = list(updated_node.args)
        for at, annotation in self._arguments.get(original_node, ()):
            wrapped = cst.parse_expression(_call(self._spelling, "x", annotation))
            assert isinstance(wrapped, cst.Call), "a call was written"
            first = wrapped.args[0].with_changes(value=args[at].value)
            args[at] = args[at].with_changes(value=wrapped.with_changes(args=[first, *wrapped.args[1:]]))
        return updated_node.with_changes(args=args)

    def leave_IndentedBlock(self, original_node: cst.IndentedBlock, updated_node: cst.IndentedBlock) -> Any:
        return updated_node.with_changes(body=self._filled(original_node, updated_node.body))

    def leave_Module(self, original_node: cst.Module, updated_node: cst.Module) -> cst.Module:
        return updated_node.with_changes(body=self._filled(original_node, updated_node.body))

    def _filled(self, block: cst.CSTNode, body: Sequence[cst.BaseStatement]) -> list[cst.BaseStatement]:
        filled = list(self._statements.get((block, 0), ()))
        for at, statement in enumerate(body, 1):
            filled += [statement, *self._statements.get((block, at), ())]
        return filled


class _Calls(cst.CSTVisitor):
    """The call at a position."""

    def __init__(self, layout: _Layout, position: tuple[int, int, int, int]) -> None:
        self.found: cst.Call | None = None
        self._layout, self._position = layout, position

    def visit_Call(self, node: cst.Call) -> None:
        lines = self._layout.lines(node)
        if (lines.start.line, lines.start.column, lines.end.line, lines.end.column) == self._position:
            self.found = node


def _place_of_parameter(
    annotation: Annotation, layout: _Layout, function: cst.FunctionDef | None, body: Block
) -> tuple[Block, int]:
    """Behind what binds the name and what fills the parameter; for what a module has itself, the end of __init__."""
    if annotation.held is not Held.BY_A_MODULE:
        return _before_use(annotation, layout, body)
    if annotation.bound == "self" and function is not None:
        if function.name.value == "__init__":
            last = body.body[-1]
            leaves = isinstance(last, cst.SimpleStatementLine) and isinstance(last.body[-1], cst.Return)
            return body, len(body.body) - leaves
        chain = layout.chain(body, annotation.line)
        if not chain:
            raise CannotPlace
        return body, chain[0][1] + 1
    bound = list(layout.bindings(body, annotation.bound))
    before = [one for one in bound if layout.lines(one[0]).start.line <= annotation.line]
    after = [one for one in bound if one not in before]
    if not bound:
        raise CannotPlace
    _, chain = before[-1] if before else after[0]
    return _behind(chain, layout.chain(body, annotation.line))


def _before_use(annotation: Annotation, layout: _Layout, body: Block) -> tuple[Block, int]:
    """Before the loop in which the parameters are used, or the call: they may be filled in several statements before.

    weights = []
    for n in sizes:
        weights.append(make(n))
    assert_type(weights, ...)         here
    for x in data:
        loss(weights, x).backward()   what is running

    Without a loop and a call the loss has been computed in a statement before: behind what binds the name.
    """
    running = layout.chain(body, annotation.line)
    bound = [
        chain
        for statement, chain in layout.bindings(body, annotation.bound)
        if layout.lines(statement).start.line < annotation.line
    ]
    places = dict(bound[-1]) if bound else {}
    shared = [(block, at) for block, at in running if block in places] or running[:1]
    if not shared:
        raise CannotPlace
    block, at = shared[-1]
    if annotation.held is Held.USED_WITHIN or not isinstance(block.body[at], cst.SimpleStatementLine):
        return block, at
    if block not in places:
        raise CannotPlace
    return block, places[block] + 1


def _place_of_input(
    annotation: Annotation, layout: _Layout, function: cst.FunctionDef | None, body: Block
) -> tuple[Block, int]:
    """Behind what binds the name last before the call; the start of the body for an argument or a loop's variable."""
    call = layout.chain(body, annotation.line)
    before = [
        one for one in layout.bindings(body, annotation.bound) if layout.lines(one[0]).start.line <= annotation.line
    ]
    if before:
        statement, chain = before[-1]
        block, at = chain[-1]
        if (block, at) in call and isinstance(statement, (cst.For, cst.With)):
            inner = next((one for one, _ in call[call.index((block, at)) + 1 :]), None)
            if inner is None:
                raise CannotPlace
            return inner, 0
        while (block not in [one for one, _ in call]) and len(chain) > 1:
            chain = chain[:-1]
            block, at = chain[-1]
        return block, at + 1
    if function is not None and annotation.bound in _parameters(function):
        first = body.body[0]
        documented = (
            isinstance(first, cst.SimpleStatementLine)
            and isinstance(first.body[0], cst.Expr)
            and isinstance(first.body[0].value, (cst.SimpleString, cst.ConcatenatedString))
        )
        return body, int(documented)
    raise CannotPlace


def _is_bound_later(key: str, layout: _Layout, body: Block, block: Block, at: int) -> bool:
    """Is the process group ``key`` made only behind the place of the annotation?"""
    name = re.match(r"\w*", key)
    if name is None or not name[0] or not at:
        return False
    line = layout.lines(block.body[at - 1]).end.line
    bound = [layout.lines(one).start.line for one, _ in layout.bindings(body, name[0])]
    return bool(bound) and min(bound) > line


def _is_bound_again(annotation: Annotation, layout: _Layout, body: Block, block: Block, at: int) -> bool:
    """Is the name bound to its wrapper only behind the place of the annotation?"""
    line = layout.lines(block.body[at - 1]).end.line
    return any(layout.lines(one).start.line > line for one, _ in layout.bindings(body, annotation.bound))


def _behind(chain: list[tuple[Block, int]], other: list[tuple[Block, int]]) -> tuple[Block, int]:
    """Behind both statements, in the innermost block that has both."""
    places = dict(other)
    for block, at in reversed(chain):
        if block in places:
            return block, max(at, places[block]) + 1
    return chain[-1][0], chain[-1][1] + 1


def _parameters(function: cst.FunctionDef) -> set[str]:
    params = function.params
    every = (*params.posonly_params, *params.params, *params.kwonly_params)
    return {one.name.value for one in every}


def _statement(spelling: Spelling, annotation: Annotation) -> str:
    """The annotation as a statement of its own."""
    expressions = annotation.expressions
    what = expressions[0] if len(expressions) == 1 else f"[{', '.join(expressions)}]"
    line = _call(spelling, what, annotation)
    if len(line) <= WIDTH or len(expressions) == 1:
        return line + "\n"
    inner = "".join(f"        {one},\n" for one in expressions)
    return f"{spelling.name('assert_type')}(\n    [\n{inner}    ],\n    {_type(spelling, annotation)},\n)\n"


def _call(spelling: Spelling, what: str, annotation: Annotation) -> str:
    return f"{spelling.name('assert_type')}({what}, {_type(spelling, annotation)})"


def _type(spelling: Spelling, annotation: Annotation) -> str:
    pairs = (f"{axis}: {spelling.name(place)}" for axis, place in annotation.type)
    return f"{{{', '.join(pairs)}}}"
