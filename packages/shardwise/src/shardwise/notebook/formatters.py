"""How a notebook shows what a cell ends with, where the value itself does not say it: findings in colours, a DeviceMesh
as a picture, and in a terminal text for what has a long repr.

``%load_ext shardwise`` tells it to the shell. Our own types, specs, meshes and plans are pictures without being told.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch.distributed.device_mesh import DeviceMesh

from shardwise.diagnostics.finding import WIDTH, Finding, absolute_root, finding_lines, render
from shardwise.diagnostics.printing.limits import DEFAULT
from shardwise.diagnostics.result import RunResult
from shardwise.diagnostics.text import render_result
from shardwise.drawing.in_notebooks import html_of
from shardwise.types.notation import TypedShape
from shardwise.verifier.text import Verdict, render_verdict

from .coloured_text import block

Text = Callable[[Any], str]


def register_formatters(shell: object) -> None:
    """Tell an IPython shell how to show our values, as HTML and, where their repr is long, as text."""
    formatters: dict[str, Any] = shell.display_formatter.formatters  # type: ignore[attr-defined]  # of IPython's shell
    pages, texts = formatters["text/html"], formatters["text/plain"]
    pages.for_type(DeviceMesh, html_of)
    pages.for_type(Finding, finding_html)
    said: dict[type, Text] = {TypedShape: str, Finding: render, RunResult: render_result, Verdict: render_verdict}
    for kind, text in said.items():
        texts.for_type(kind, lambda value, printer, cycle, text=text: printer.text(text(value)))
    for kind in (RunResult, Verdict):
        pages.for_type(kind, lambda value, text=said[kind]: block([[("", line)] for line in text(value).split("\n")]))


def finding_html(finding: Finding) -> str:
    """As in a terminal with colours."""
    return block(finding_lines(finding, WIDTH, absolute_root(None), DEFAULT))
