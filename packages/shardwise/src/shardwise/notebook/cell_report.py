"""What is shown under a checked cell: as HTML in a notebook, as text in a terminal."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from dataclasses import dataclass

from shardwise.diagnostics.finding import WIDTH, absolute_root, finding_lines
from shardwise.diagnostics.printing.limits import DEFAULT, counted
from shardwise.diagnostics.printing.paint import Line
from shardwise.diagnostics.printing.printable import columns, safe_str
from shardwise.diagnostics.result import RunResult

from .coloured_text import block, span

_CELL = re.compile(r"<ipython-input-[\w-]+>|\S*ipykernel_\d+[/\\]\d+\.py")
"""What IPython calls the file of a cell."""


@dataclass(frozen=True)
class CellValue:
    """A tensor that the cell has bound to ``name``; ``type`` is only its dtype and shape where it has none."""

    name: str
    type: str
    is_typed: bool = True


@dataclass(frozen=True)
class CellReport:
    """A cell that was run under the checker. ``is_broken``: it has raised, which the shell has shown."""

    result: RunResult
    values: tuple[CellValue, ...] = ()
    is_broken: bool = False

    def __repr__(self) -> str:
        lines = ["".join(text for _, text in line).rstrip() for line in self._findings()]
        if self.values:
            lines += [*columns([(value.name, f"{safe_str(value.type)}{_note(value)}") for value in self.values]), ""]
        return "\n".join([*lines, self._summary])

    def _repr_html_(self) -> str:
        findings = list(self._findings())
        rows = "".join(
            f"<tr><td style='text-align:left'><code>{html.escape(value.name)}</code></td>"
            f"<td style='text-align:left'><code>{html.escape(safe_str(value.type))}</code>{_note(value)}</td></tr>"
            for value in self.values
        )
        head = "<tr><th style='text-align:left'>tensor</th><th style='text-align:left'>type</th></tr>"
        table = f"<table>{head}{rows}</table>" if rows else ""
        style = (
            "error" if self.result.errors else "good" if self.result.checked_ops and not self.is_broken else "warning"
        )
        shown = block(findings) if findings else ""
        return f"<div>{shown}{table}<p>{span(style, self._summary)}</p></div>"

    def _findings(self) -> Iterator[Line]:
        for finding in self.result.findings:
            for line in finding_lines(finding, WIDTH, absolute_root(None), DEFAULT):
                yield [(style, _CELL.sub("cell", text)) for style, text in line]
            yield []

    @property
    def _summary(self) -> str:
        errors = len(self.result.errors)
        if errors:
            said = counted(errors, "error")
        elif self.is_broken:
            said = "stopped"
        elif not self.result.checked_ops:
            said = "nothing checked: no operation with typed operands was run"
        else:
            said = "clean"
        checked = f"; {counted(self.result.checked_ops, 'operation')} checked" if self.result.checked_ops else ""
        held_back = len(self.result.held_back)
        held = f", {counted(held_back, 'finding')} held back" if held_back else ""
        return f"{said}{checked}{held} on mesh {self.result.mesh}"


def _note(value: CellValue) -> str:
    return "" if value.is_typed else " (no type)"
