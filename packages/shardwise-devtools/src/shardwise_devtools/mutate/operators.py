"""Which mistakes are made at which line? One small generator of mistakes per kind, over the syntax tree of a program.

The kinds are those of public bugs: a collective forgotten, doubled, over the wrong axis, of the wrong dim or
transition, before where after was meant; a bias added per rank; a loss divided by the wrong count. Those of messages,
groups and pieces are in ``between_ranks``.
"""

from __future__ import annotations

import ast
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from . import between_ranks
from .idioms import PLACEMENTS, is_declaration, is_partial, is_raw, is_typed, keyword, name_of
from .scene import Change, Operator, Scene
from .source import Edit, Source


@dataclass(frozen=True)
class Mutant:
    """One mistake in one file.

    ``before``, ``after``  the text of the expression that it is in.
    ``text``               the whole file with the mistake.
    """

    operator: str
    source: Source
    line: int
    before: str
    after: str
    text: str

    @property
    def place(self) -> str:
        return f"{self.source.path.name}:{self.line}"

    @property
    def texts(self) -> dict[Path, str]:
        """What takes the place of the file."""
        return {self.source.path: self.text}


def mutants_of(scene: Scene, operators: Sequence[str] = ()) -> Iterator[Mutant]:
    """Every mutant of one file, by ``operators`` (all of them if none is named), without repetitions."""
    seen = {ast.dump(scene.source.tree)}
    for name, operator in OPERATORS.items():
        if operators and name not in operators:
            continue
        for node, edits in operator(scene):
            text = scene.source.edited(edits)
            try:
                form = ast.dump(ast.parse(text))
            except SyntaxError as error:
                raise AssertionError(f"{name} made no program of {scene.source.segment(node)!r}") from error
            if form not in seen:
                seen.add(form)
                yield Mutant(name, scene.source, node.lineno, *_shown(scene.source, node, edits), text)


def _shown(source: Source, node: ast.expr | ast.stmt, edits: Sequence[Edit]) -> tuple[str, str]:
    """The text of the edited region before and after, on one line."""
    spans = [(edit.start, edit.end) for edit in edits] + [source.span(node)]
    start, end = min(low for low, _ in spans), max(high for _, high in spans)
    whole = source.text.encode()
    after = source.edited(edits).encode()
    grown = len(after) - len(whole)
    before, changed = whole[start:end].decode(), after[start : end + grown].decode()
    return " ".join(before.split()), " ".join(changed.split())


def drop(scene: Scene) -> Iterator[Change]:
    """The call is forgotten: its operand takes its place."""
    for call in scene.calls(scene.communicates):
        yield call, (scene.source.replace(call, scene.grouped(call.args[0])),)
    for statement in _raw_statements(scene):
        yield statement, (scene.source.replace(statement, "pass"),)


def double(scene: Scene) -> Iterator[Change]:
    """The call is made twice."""
    for call in scene.calls(scene.communicates):
        yield call, (scene.source.replace(call.args[0], scene.source.segment(call)),)
    for statement in _raw_statements(scene):
        text = scene.source.segment(statement)
        yield statement, (scene.source.replace(statement, f"{text}; {text}"),)


def axis(scene: Scene) -> Iterator[Change]:
    """Another mesh axis is named."""
    for call in scene.calls(lambda node: is_typed(node) or is_raw(node) or is_partial(node)):
        operands = call.args[:1]
        for argument in [*call.args[1:], *(one.value for one in call.keywords)]:
            for node in ast.walk(argument):
                if isinstance(node, ast.Constant) and node.value in scene.axes and node not in operands:
                    for other in scene.axes:
                        if other != node.value:
                            yield call, (scene.source.replace(node, f'"{other}"'),)


def dim(scene: Scene) -> Iterator[Change]:
    """Another tensor dim is named: in ``S(i)``, or by an argument of the collective."""
    for call in scene.calls(is_typed):
        for one in call.keywords:
            for node in ast.walk(one.value):
                if name_of(node) in ("S", "Shard") and isinstance(node, ast.Call):
                    yield from _other_dims(scene, call, node.args[0])
            if one.arg in ("gather_dim", "scatter_dim", "split_dim", "concat_dim"):
                yield from _other_dims(scene, call, one.value)


def _other_dims(scene: Scene, call: ast.Call, node: ast.expr) -> Iterator[Change]:
    if isinstance(node, ast.Constant) and isinstance(node.value, int):
        for other in (node.value - 1, node.value + 1):
            if other >= 0:
                yield call, (scene.source.replace(node, str(other)),)


def transition(scene: Scene) -> Iterator[Change]:
    """Another src or dst is named."""
    for call in scene.calls(lambda node: is_typed(node) or is_partial(node)):
        for name in ("src", "dst"):
            one = keyword(call, name)
            if one is None or (prefix := _placement_prefix(scene, one.value)) is None:
                continue
            for other in PLACEMENTS:
                if scene.source.segment(one.value).rpartition(".")[2] != other:
                    yield call, (scene.source.replace(one.value, prefix + other),)


def _placement_prefix(scene: Scene, node: ast.expr) -> str | None:
    """What stands before a placement's letter, to write another one; None if ``node`` is no placement."""
    letter = node.func if isinstance(node, ast.Call) else node
    if isinstance(letter, ast.Name) and letter.id in (*PLACEMENTS, "S"):
        return "" if _imports_all(scene) else _module_prefix(scene)
    if isinstance(letter, ast.Attribute) and letter.attr in (*PLACEMENTS, "S"):
        return scene.source.segment(letter.value) + "."
    return None


def _imports_all(scene: Scene) -> bool:
    """Every letter can be written as it is."""
    nodes = [node for node in ast.walk(scene.source.tree) if isinstance(node, ast.ImportFrom)]
    return {alias.name for node in nodes if node.module == "shardwise" for alias in node.names} >= set(PLACEMENTS)


def _module_prefix(scene: Scene) -> str:
    """How this file names the package, so that a letter that it did not import can be written."""
    for node in ast.walk(scene.source.tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name == "shardwise":
                    return (alias.asname or alias.name) + "."
    return "__import__('shardwise')."


def kind(scene: Scene) -> Iterator[Change]:
    """The bits are kept where the value was meant, or the other way round."""
    other = {"convert": "reinterpret", "reinterpret": "convert"}
    for call in scene.calls(is_typed):
        if name_of(call) in other:
            function = scene.source.segment(call.func)
            renamed = function[: -len(name_of(call))] + other[name_of(call)]
            yield call, (scene.source.replace(call.func, renamed),)


def bias(scene: Scene) -> Iterator[Change]:
    """A term is added before the sum over ranks, or after it, where the other was meant."""
    yield from _moved(scene, (ast.Add, ast.Sub))


def order(scene: Scene) -> Iterator[Change]:
    """The call comes before what it came after, or after what it came before."""
    yield from _moved(scene, (ast.Mult, ast.Div, ast.MatMult, ast.Pow))
    source = scene.source
    for call in scene.calls(scene.communicates):
        parent = source.parents.get(call)
        inner = call.args[0]
        if isinstance(parent, ast.Attribute) and isinstance(method := source.parents.get(parent), ast.Call):
            rest = source.segment(method)[len(source.segment(parent)) :]
            moved = f"{scene.grouped(inner)}.{parent.attr}{rest}"
            yield call, (source.replace(method, _with_operand(scene, call, moved)),)
        elif isinstance(parent, ast.Call) and parent.args and parent.args[0] is call and not scene.communicates(parent):
            moved = _with_operand(scene, parent, source.segment(inner))
            yield call, (source.replace(parent, _with_operand(scene, call, moved)),)
        if isinstance(inner, ast.Call) and not scene.communicates(inner) and not is_partial(inner):
            if isinstance(inner.func, ast.Attribute) and not _is_module(scene, inner.func.value):
                receiver = _with_operand(scene, call, source.segment(inner.func.value))
                rest = source.segment(inner)[len(source.segment(inner.func.value)) :]
                yield call, (source.replace(call, receiver + rest),)
            elif inner.args:
                operand = _with_operand(scene, call, source.segment(inner.args[0]))
                yield call, (source.replace(call, _with_operand(scene, inner, operand)),)


def late(scene: Scene) -> Iterator[Change]:
    """The call is made one statement later, on what was computed from its operand."""
    for block in _blocks(scene.source.tree):
        for first, second in itertools.pairwise(block):
            if not isinstance(first, ast.Assign) or not isinstance(second, ast.Assign | ast.Return):
                continue
            call, value = first.value, second.value
            target = first.targets[0]
            if not scene.communicates(call) or not isinstance(target, ast.Name) or value is None:
                continue
            assert isinstance(call, ast.Call), "what communicates is a call"
            if any(isinstance(node, ast.Name) and node.id == target.id for node in ast.walk(value)):
                if is_declaration(scene.source, call) or scene.communicates(value):
                    continue
                here = scene.source.replace(call, scene.grouped(call.args[0]))
                there = scene.source.replace(value, _with_operand(scene, call, scene.source.segment(value)))
                yield call, (here, there)


def denominator(scene: Scene) -> Iterator[Change]:
    """A loss is divided by another count: not at all, by the number of ranks once more; a mean is a sum."""
    world = "__import__('torch').distributed.get_world_size()"
    for node in scene.in_order(ast.BinOp):
        assert isinstance(node, ast.BinOp), "only those are looked for"
        if isinstance(node.op, ast.Div) and not is_declaration(scene.source, node) and _of_a_loss(scene, node):
            yield node, (scene.source.replace(node, scene.grouped(node.left)),)
            yield node, (scene.source.replace(node, f"({scene.source.segment(node)} / {world})"),)
    other = {"mean": "sum", "sum": "mean"}
    for call in scene.calls(lambda node: name_of(node) in other and not is_partial(node)):
        if isinstance(call.func, ast.Attribute) and _of_a_loss(scene, call):
            renamed = scene.source.segment(call.func)[: -len(call.func.attr)] + other[call.func.attr]
            yield call, (scene.source.replace(call.func, renamed),)


def apart(scene: Scene) -> Iterator[Change]:
    """A mean over the pieces of all ranks is taken over the own piece alone."""
    for call in scene.calls(lambda node: is_partial(node) and name_of(node) == "mean"):
        dims = [scene.source.segment(one) for one in call.args[1:] if not _names_axes(one)]
        yield call, (scene.source.replace(call, f"{scene.grouped(call.args[0])}.mean({', '.join(dims)})"),)


def _names_axes(node: ast.expr) -> bool:
    return any(isinstance(one, ast.Constant) and isinstance(one.value, str) for one in ast.walk(node))


def reduction(scene: Scene) -> Iterator[Change]:
    """A raw collective reduces by another operation."""
    for call in scene.calls(is_raw):
        for node in ast.walk(call):
            if isinstance(node, ast.Attribute) and node.attr in ("SUM", "AVG", "MAX"):
                for other in ("SUM", "AVG", "MAX"):
                    yield call, (scene.source.replace(node, scene.source.segment(node.value) + "." + other),)


OPERATORS: dict[str, Operator] = {
    function.__name__.rstrip("_"): function
    for function in (
        *(drop, double, axis, dim, transition, kind, bias, order, late, denominator, apart, reduction),
        *between_ranks.OPERATORS,
    )
}
OF_MESSAGES = tuple(function.__name__.rstrip("_") for function in between_ranks.OPERATORS)
OF_COLLECTIVES = tuple(name for name in OPERATORS if name not in OF_MESSAGES)


def _moved(scene: Scene, operations: tuple[type[ast.operator], ...]) -> Iterator[Change]:
    """``reduce(x) + b`` becomes ``reduce(x + b)``, and the reverse."""
    source = scene.source
    for call in scene.calls(scene.communicates):
        parent, inner = source.parents.get(call), call.args[0]
        if isinstance(parent, ast.BinOp) and isinstance(parent.op, operations):
            whole = source.edited((source.replace(call, source.segment(inner)),)).encode()
            start, end = source.span(parent)
            shorter = len(source.segment(call).encode()) - len(source.segment(inner).encode())
            moved = whole[start : end - shorter].decode()
            yield parent, (source.replace(parent, _with_operand(scene, call, moved)),)
        if isinstance(inner, ast.BinOp) and isinstance(inner.op, operations):
            left = _with_operand(scene, call, source.segment(inner.left))
            between = source.segment(inner)[len(source.segment(inner.left)) :]
            yield call, (source.replace(call, f"({left}{between})"),)


def _with_operand(scene: Scene, call: ast.Call, operand: str) -> str:
    """The text of ``call`` with another first operand."""
    text, (start, _), (low, high) = scene.source.segment(call), scene.source.span(call), scene.source.span(call.args[0])
    raw = text.encode()
    return (raw[: low - start] + operand.encode() + raw[high - start :]).decode()


def _raw_statements(scene: Scene) -> Iterator[ast.Expr]:
    for node in scene.in_order(ast.Expr):
        if isinstance(node, ast.Expr) and is_raw(node.value) and not is_declaration(scene.source, node.value):
            yield node


def _of_a_loss(scene: Scene, node: ast.AST) -> bool:
    """``node`` makes what is called a loss: its name, or that of the function that returns it, says so."""
    parents = list(scene.source.around(node))
    statement = next((one for one in parents if isinstance(one, ast.stmt)), None)
    if isinstance(statement, ast.Assign | ast.AnnAssign | ast.AugAssign):
        targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
        return any("loss" in scene.source.segment(target).lower() for target in targets)
    function = next((one for one in parents if isinstance(one, ast.FunctionDef)), None)
    return isinstance(statement, ast.Return) and function is not None and "loss" in function.name.lower()


def _is_module(scene: Scene, node: ast.expr) -> bool:
    """``node`` names a module that this file imports (``F`` of ``F.relu(x)``)."""
    if not isinstance(node, ast.Name):
        return isinstance(node, ast.Attribute) and _is_module(scene, node.value)
    imports = [one for one in ast.walk(scene.source.tree) if isinstance(one, ast.Import | ast.ImportFrom)]
    return any((alias.asname or alias.name).split(".")[0] == node.id for one in imports for alias in one.names)


def _blocks(tree: ast.AST) -> Iterator[list[ast.stmt]]:
    for node in ast.walk(tree):
        for name in ("body", "orelse", "finalbody"):
            block = getattr(node, name, None)
            if isinstance(block, list):
                yield block
