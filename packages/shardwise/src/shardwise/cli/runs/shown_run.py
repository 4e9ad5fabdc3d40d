"""``--annotate`` and ``--html``: the run beside its source, in the terminal or as a file."""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from shardwise.configuration.settings import Settings
from shardwise.configuration.whole_file import write_whole
from shardwise.diagnostics.result import RunResult
from shardwise.diagnostics.run_record import NamedLayout, RunRecord
from shardwise.mesh.axis import MeshAxis
from shardwise.mesh.shape import MeshShape

from .screen import Color, screen

if TYPE_CHECKING:
    from shardwise.report.page import NumbersSection
    from shardwise.uniformity.calls import Trace

NOTHING_SAID = Settings()
Command = Callable[..., Any]


def annotate_option(command: Command) -> Command:
    """``annotate``."""
    return click.option(
        "--annotate",
        is_flag=True,
        help="Print the program with the types of what each line binds, before the report.",
    )(command)


def html_option(command: Command) -> Command:
    """``html``."""
    return click.option(
        "--html",
        metavar="FILE",
        type=click.Path(dir_okay=False, writable=True),
        help="Write the report as one HTML file: source with types and findings, modules, collectives, verdict.",
    )(command)


def require_template() -> None:
    """A usage error if the library that writes pages is not installed."""
    if importlib.util.find_spec("jinja2") is None:
        raise click.UsageError("--html needs the package jinja2: pip install 'shardwise[report]'")


def show_annotated(result: RunResult, form: str, color: Color, whole: bool) -> None:
    """Print the program with its types; forms for programs have them under ``record``."""
    if form != "text":
        return
    from shardwise.report.annotated_source import annotated

    shown = screen(color)
    text = annotated(result, color=shown.color, width=shown.width, whole=whole)
    click.echo(f"{text}\n" if text else "", color=True)


def write_html(
    file: str,
    result: RunResult,
    traces: Sequence[Trace] = (),
    numbers: NumbersSection | None = None,
    settings: Settings = NOTHING_SAID,
) -> RunResult:
    """Write the report; the result with what the ranks issued in its record, timed over the links of ``settings``. A
    usage error if it cannot be written."""
    from shardwise import __version__
    from shardwise.report.page import report_page
    from shardwise.uniformity.collective_costs import costed

    calls, links = costed(traces, settings.bandwidth, settings.latency, _axes(result))
    result = replace(result, record=replace(result.record or RunRecord(), collectives=calls, links=links))
    try:
        write_whole(Path(file), report_page(result, version=__version__, numbers=numbers).encode())
    except OSError as error:
        raise click.UsageError(f"--html {file}: cannot be written ({error.strerror})") from None
    click.echo(f"shardwise: the report is in {file}", err=True)
    return result


def _axes(result: RunResult) -> dict[str, MeshAxis]:
    """Those of the mesh that the run was given, else of the largest that the program has made."""
    if result.mesh:
        return MeshShape.parse(result.mesh).as_axes()
    made = () if result.record is None else result.record.meshes
    largest = max((mesh.axes for mesh in made), key=lambda axes: math.prod(map(_ranks, axes)), default=())
    return {axis.name: MeshAxis.from_layout(axis.sizes, axis.strides) for axis in largest}


def _ranks(axis: NamedLayout) -> int:
    return math.prod(axis.sizes)
