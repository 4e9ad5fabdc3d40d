"""The report of a run as one HTML file: everything inline, nothing from the network, every text escaped.

The template writes values as they are given here; texts of the program (names, source, messages) have no control
characters and nothing that reorders a line, and the template escapes them. The page forbids by its content policy what
it does not itself contain.
"""

from __future__ import annotations

import base64
import hashlib
import importlib.resources
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from shardwise.diagnostics.codes import CODES
from shardwise.diagnostics.finding import Finding, absolute_root, finding_lines, location_text
from shardwise.diagnostics.printing.limits import EVERYTHING, counted
from shardwise.diagnostics.printing.paint import Line
from shardwise.diagnostics.printing.printable import safe_str
from shardwise.diagnostics.printing.quantities import byte_count, duration
from shardwise.diagnostics.printing.ranks import ranks_text
from shardwise.diagnostics.result import ExitCode, Noted, RunResult
from shardwise.diagnostics.run_record import NamedTypes, RunRecord
from shardwise.diagnostics.source_location import SourceLocation

from .mesh_figures import mesh_figures
from .module_tree import module_tree
from .source_view import SourceFile, source_files
from .traffic import LANE, WIDTH, by_axis, by_line, link_text, of_one_rank, timeline

MOST_LISTED = 1000
"""Entries of one list that are written; the number of the rest is told."""
COLUMNS, COLUMNS_OF_A_PHONE = 110, 42
"""Of a finding."""
MOST_MESHES = 12
FEW = 12
"""So many tensors that disagree are shown unfolded."""
_TONES = {ExitCode.CLEAN: "good", ExitCode.FINDINGS: "error"}


@dataclass(frozen=True, slots=True)
class NumbersSection:
    """What ``verify`` says of the numbers: its sentence, and lists of what disagrees and of what was not compared.

    ``tone``  ``good``, ``warning`` or ``error``.
    """

    said: str
    tone: str
    disagreements: tuple[Noted, ...] = ()
    not_compared: tuple[Noted, ...] = ()
    text: tuple[Line, ...] = ()


def report_page(
    result: RunResult, *, version: str = "", root: str | None = None, numbers: NumbersSection | None = None
) -> str:
    """The page. ``numbers`` adds what ``verify`` has compared; paths are relative to ``root`` (default: here)."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    root = absolute_root(root)
    environment = Environment(
        loader=PackageLoader("shardwise.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    style, script = _asset("report.css"), _asset("report.js")
    record = result.record or RunRecord()
    calls = of_one_rank(record.collectives)
    files = source_files(result, root)
    environment.filters.update(shown=safe_str, bytes=byte_count, seconds=duration, counted=counted, values=_values_text)
    places = _Places(files, root)
    return environment.get_template("report.html").render(
        policy=f"default-src 'none'; style-src '{_digest(style)}'; script-src '{_digest(script)}'; "
        "img-src data:; base-uri 'none'; form-action 'none'",
        style=_inline(style),
        script=_inline(script),
        result=result,
        version=version,
        tone=_TONES.get(result.exit_code, "warning"),
        said=_said(result),
        findings=[
            (number, one, *(_text(one, root, width) for width in (COLUMNS, COLUMNS_OF_A_PHONE)))
            for number, one in enumerate(result.findings, 1)
        ],
        summaries={code: CODES[code].summary for code in {one.code for one in result.findings}},
        files=files,
        places=places,
        modules=module_tree(record.modules),
        axes=by_axis(calls),
        lines=by_line(calls)[:MOST_LISTED],
        timeline=timeline(calls) if calls else None,
        lane=LANE,
        width=WIDTH,
        links=[link_text(link) for link in record.links],
        meshes=mesh_figures(result.mesh, record.meshes),
        most_meshes=MOST_MESHES,
        few=FEW,
        numbers=numbers,
        wrong=_wrong(numbers, places),
        lists=[entry for entry in _lists(result, numbers) if entry[1]],
        ranks=ranks_text(result.ranks) if result.ranks else "",
        most=MOST_LISTED,
    )


class _Places:
    """Where a source location is on the page, and how it is written."""

    def __init__(self, files: Sequence[SourceFile], root: str) -> None:
        self._root = root
        self._lines = {
            (file.path, line.number): f"f{file.index}-{line.number}" for file in files for line in file.lines
        }

    def text(self, location: SourceLocation) -> str:
        """``train.py:47:9``."""
        return location_text(location, self._root)

    def anchor(self, location: SourceLocation) -> str:
        """The name of the line on the page; empty if it is not there."""
        path = self.text(SourceLocation(location.file, location.line)).rpartition(":")[0]
        return self._lines.get((path, location.line), "")


def _lists(result: RunResult, numbers: NumbersSection | None) -> list[tuple[str, Sequence[Noted], str]]:
    """What the verdict rests on: title, entries, what it means."""
    lists: list[tuple[str, Sequence[Noted], str]] = [
        ("Trusted", result.trusted, "said by the program or its author, and not proven"),
        ("Types lost", result.lost, "known until here; nothing is claimed of what follows"),
        ("Not checked", result.unchecked, "called on tensors of which nothing is known"),
        (
            "Operators without a rule",
            [Noted(op, None, count) for op, count in result.no_rule_ops],
            "their results are unknown",
        ),
        ("Not followed", [Noted(part) for part in result.not_followed], "the installed torch does not let us"),
    ]
    if numbers is not None:
        lists.insert(0, ("Not compared", numbers.not_compared, "verify says nothing of these numbers"))
    return lists


def _said(result: RunResult) -> str:
    errors, warnings = len(result.errors), len(result.warnings)
    found = [counted(count, noun) for count, noun in ((errors, "error"), (warnings, "warning")) if count]
    head = ", ".join(found) if found else result.verdict.replace("-", " ")
    checked = f"{counted(result.checked_ops, 'operation')} checked"
    return f"{head}; {checked}" + (f", {result.unchecked_ops} unchecked" if result.unchecked_ops else "")


def _values_text(values: Sequence[NamedTypes]) -> str:
    return ", ".join(f"{one.name}: {one.text}" if one.name else one.text for one in values)


def _text(finding: Finding, root: str, width: int) -> list[Line]:
    """The finding as in a terminal, without its first line, which is the title of its card."""
    return finding_lines(finding, width, root, EVERYTHING)[1:]


def _wrong(numbers: NumbersSection | None, places: _Places) -> dict[str, list[tuple[int, Noted]]]:
    """What disagrees at each line of the page, with its number there."""
    found: dict[str, list[tuple[int, Noted]]] = {}
    for number, one in enumerate(numbers.disagreements[:MOST_LISTED] if numbers else (), 1):
        if one.location is not None and (anchor := places.anchor(one.location)):
            found.setdefault(anchor, []).append((number, one))
    return found


def _asset(name: str) -> str:
    return (importlib.resources.files("shardwise.report") / "assets" / name).read_text(encoding="utf-8")


def _digest(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _inline(asset: str) -> Any:
    """A file of this package, written as it stands."""
    from markupsafe import Markup

    return Markup(asset)
