"""``%%shardwise --mesh dp=2,tp=2``: a cell run as one rank of an imagined job, under the checker.

``%load_ext shardwise`` makes the magic known. Under the cell its findings are shown, and the types of the tensors that
it has bound. Every cell is a job of its own: variables stay, process groups and meshes do not.
"""

from __future__ import annotations

import argparse
import ast
import shlex
from collections.abc import Iterator
from typing import Any, NoReturn

import torch
from IPython.core.error import UsageError
from IPython.display import display

from shardwise.collectives.queries import has_local_type, typeof
from shardwise.diagnostics.errors import SpmdArgumentError, SpmdTypeError, shown
from shardwise.testing.block import checked, collector_of, one_rank
from shardwise.testing.options import TestOptions, options_of

from .cell_report import CellReport, CellValue
from .formatters import register_formatters

MAGIC = "shardwise"


class _Parser(argparse.ArgumentParser):
    """One whose errors are those of a magic, and no end of the process."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"%%{MAGIC}: {message}\n{self.format_usage().strip()}")

    def exit(self, status: int = 0, message: str | None = None) -> NoReturn:
        raise UsageError(message or self.format_help())


def _parser() -> _Parser:
    parser = _Parser(prog=f"%%{MAGIC}", allow_abbrev=False, add_help=False)
    parser.add_argument("--mesh", required=True, help="axes and sizes, outermost first, e.g. dp=2,tp=2")
    parser.add_argument("--global", dest="global_types", action="store_true", help="global types too")
    parser.add_argument("--strict", action="store_true", help="every tensor in play needs a type")
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
        display(checked_cell(shell, _options(line), cell))  # type: ignore[no-untyped-call]

    shell.register_magic_function(shardwise, magic_kind="cell", magic_name=MAGIC)
    register_formatters(shell)


def _options(line: str) -> TestOptions:
    said = _parser().parse_args(shlex.split(line))
    try:
        return options_of(said.mesh, global_types=said.global_types, strict=said.strict, ranks=said.rank)
    except SpmdTypeError as error:
        raise UsageError(f"%%{MAGIC}: {error.message}") from None


def checked_cell(shell: Any, options: TestOptions, cell: str) -> CellReport:
    """Run ``cell`` in the shell, which shows what it prints and raises, and report it."""
    (rank,) = options.ranks or (0,)
    collector = collector_of(options, "this cell", rank)
    values: list[CellValue] = []
    with one_rank(options, rank), checked(options, collector):
        came = shell.run_cell(cell, store_history=False)
        error = came.error_before_exec or came.error_in_exec
        if isinstance(error, SpmdTypeError) and error.finding is not None:
            collector.add(error.finding)
        values += _values(shell, cell)
    return CellReport(collector.result(), tuple(values), is_broken=error is not None)


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
