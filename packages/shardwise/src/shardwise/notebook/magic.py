"""``%%shardwise --mesh dp=2,tp=2``: a cell run as one rank of an imagined job, under the checker.

``%load_ext shardwise`` makes the magic known. Under the cell its findings are shown, and the types of the tensors that
it has bound. Every cell is a job of its own: variables stay, process groups and meshes do not. What the line leaves
open the project says, ``[tool.shardwise]`` of the notebook's folder.
"""

from __future__ import annotations

import argparse
import ast
import asyncio
import contextlib
import difflib
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import torch
from IPython.core.error import UsageError
from IPython.core.interactiveshell import InteractiveShell
from IPython.display import display

from shardwise.collectives.queries import has_local_type, typeof
from shardwise.configuration.ignore_comments import may_have_comments
from shardwise.diagnostics.errors import SpmdArgumentError, SpmdTypeError, shown
from shardwise.diagnostics.result import Collector
from shardwise.host.reached_comments import ReachedComments, noting_for_good
from shardwise.testing.block import checked, collector_of, one_rank
from shardwise.testing.options import TestOptions, options_in

from .cell_report import CellReport, CellValue
from .formatters import register_formatters

MAGIC = "shardwise"


class CellStopped(Exception):
    """A checked cell has raised: cells behind it are not to be run. What it has raised is shown already."""

    def _render_traceback_(self) -> list[str]:
        return [str(self)]


class _Parser(argparse.ArgumentParser):
    """One whose errors are those of a magic, and no end of the process."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"%%{MAGIC}: {message}\n{self.format_usage().strip()}")

    def exit(self, status: int = 0, message: str | None = None) -> NoReturn:
        raise UsageError(message or self.format_help())


def _parser() -> _Parser:
    parser = _Parser(prog=f"%%{MAGIC}", allow_abbrev=False, add_help=False)
    parser.add_argument("--mesh", help="axes and sizes, outermost first, e.g. dp=2,tp=2")
    parser.add_argument("--global", dest="global_types", action="store_true", default=None, help="global types too")
    parser.add_argument("--strict", action="store_true", default=None, help="every tensor in play needs a type")
    parser.add_argument("--rank", type=int, default=0, help="the rank that is run (0)")
    return parser


def register(shell: object) -> None:
    """Make the magic, and how our values are shown, known to an IPython shell. Errors: SW905 if it is none."""
    if not hasattr(shell, "register_magic_function"):
        raise SpmdArgumentError(
            f"expected the IPython shell that %load_ext gives, got {shown(shell)}",
            code="SW905",
            help=("%load_ext shardwise in a notebook",),
        )

    def shardwise(line: str, cell: str) -> None:
        """Check the cell, run as one rank of an imagined job: %%shardwise --mesh dp=2,tp=2 [--global] [--strict]"""
        options = _options(line)
        if _awaits(shell, cell):
            raise UsageError(f"%%{MAGIC}: a checked cell cannot await in a notebook, whose loop runs already")
        report = checked_cell(shell, options, cell)
        display(report)  # type: ignore[no-untyped-call]
        if report.is_broken:
            raise CellStopped("the cell has raised; what is above was found until then")

    shell.register_magic_function(shardwise, magic_kind="cell", magic_name=MAGIC)
    register_formatters(shell)


def _options(line: str) -> TestOptions:
    parser = _parser()
    try:
        said, strange = parser.parse_known_args(shlex.split(line))
    except ValueError as error:  # a quotation that is not closed
        raise UsageError(f"%%{MAGIC}: {str(error).lower()} in {line!r}") from None
    if strange and strange[0] in ("-h", "--help"):
        raise UsageError(parser.format_help().strip())
    if strange:
        near = difflib.get_close_matches(strange[0], re.findall(r"--\w+", parser.format_usage()), n=1)
        parser.error(f"there is no {strange[0]}" + (f"; did you mean {near[0]}?" if near else ""))
    given = {"mesh": said.mesh, "global_types": said.global_types, "strict": said.strict, "ranks": said.rank}
    try:
        options = options_in(Path.cwd(), {name: value for name, value in given.items() if value is not None})
    except SpmdTypeError as error:
        raise UsageError(f"%%{MAGIC}: {error.message}") from None
    if options is None:
        parser.error("say on which mesh: --mesh dp=2,tp=2, or mesh under [tool.shardwise] in pyproject.toml")
    return options


def _awaits(shell: object, cell: str) -> bool:
    """The cell awaits at its top, and a loop runs already: IPython would start another inside, which is an error."""
    try:
        asyncio.get_running_loop()
        assert isinstance(shell, InteractiveShell), "register has looked"
        transformed = shell.transform_cell(cell)  # type: ignore[no-untyped-call]
        return bool(shell.should_run_async(cell, transformed_cell=transformed))
    except (RuntimeError, SyntaxError):  # no loop runs, or the shell will say what is wrong
        return False


def checked_cell(shell: Any, options: TestOptions, cell: str) -> CellReport:
    """Run ``cell`` in the shell, which shows what it prints and raises, and report it."""
    (rank,) = options.ranks or (0,)
    collector = collector_of(options, "this cell", rank)
    values: list[CellValue] = []
    with one_rank(options, rank), checked(options, collector), _noting_comments(shell, cell, collector):
        came = shell.run_cell(cell, store_history=False)
        error = came.error_before_exec or came.error_in_exec
        if isinstance(error, SpmdTypeError) and error.finding is not None:
            collector.add(error.finding)
        values += _values(shell, cell)
    ran_whole = error is None
    result = options.reported(collector.result(), judges_comments=ran_whole)
    return CellReport(result, tuple(values), is_broken=not ran_whole)


@contextlib.contextmanager
def _noting_comments(shell: InteractiveShell, cell: str, collector: Collector) -> Iterator[None]:
    """Inside the block the collector learns which ignore comments of the cell are reached."""
    text = shell.transform_cell(cell)  # type: ignore[no-untyped-call]
    if not may_have_comments(text):
        yield
        return
    comments, name = noting_for_good(), shell.compile.cache(text, shell.execution_count, raw_code=cell)
    marking = _Marking(comments, name)
    shell.ast_transformers.append(marking)
    try:
        yield
    finally:
        shell.ast_transformers.remove(marking)
        collector.ignores = comments.result()


class _Marking(ast.NodeTransformer):
    """What IPython shows a cell's tree to before it runs it."""

    def __init__(self, comments: ReachedComments, file: str) -> None:
        self._comments = comments
        self._file = file

    def visit(self, node: ast.AST) -> ast.AST:
        """The tree with marks before statements that have ignore comments."""
        self._comments.mark(node, self._file)
        return node


def _values(shell: Any, cell: str) -> Iterator[CellValue]:
    """The tensors that the names bound by the cell are now."""
    for name in bound_names(shell.transform_cell(cell)):
        value = shell.user_ns.get(name)
        if isinstance(value, torch.Tensor):
            typed = has_local_type(value)
            said = str(typeof(value)) if typed else f"{value.dtype} {list(value.shape)}".removeprefix("torch.")
            yield CellValue(name, said, typed)


def bound_names(source: str) -> list[str]:
    """The names that a cell binds, once each, in the order of its lines; not those inside its functions."""
    try:
        todo: list[ast.AST] = [ast.parse(source)]
    except SyntaxError:
        return []
    found: dict[str, tuple[int, int]] = {}
    while todo:
        node = todo.pop()
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            at = (node.lineno, node.col_offset)
            found[node.id] = min(at, found.get(node.id, at))
        inner = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda, ast.ListComp, ast.SetComp)
        if not isinstance(node, (*inner, ast.DictComp, ast.GeneratorExp)):
            todo += ast.iter_child_nodes(node)
    return sorted(found, key=lambda name: found[name])
