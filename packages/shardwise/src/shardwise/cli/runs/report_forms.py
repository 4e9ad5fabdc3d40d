"""The report of a check in the form that is asked for: ``--format``."""

from __future__ import annotations

from typing import Literal

from shardwise.diagnostics.printing.limits import Limits
from shardwise.diagnostics.result import RunResult

from .screen import Color, screen

Form = Literal["text", "json", "sarif", "github", "junit", "badge"]


def rendered(result: RunResult, form: Form, color: Color, limits: Limits, docs: str) -> str:
    """``result`` as text of that form; ``docs``: where the pages of codes are, for the forms that link to them."""
    if form == "json":
        from shardwise.diagnostics.formats import to_json

        return to_json(result)
    if form == "sarif":
        from shardwise import __version__
        from shardwise.diagnostics.services.sarif import to_sarif

        from .sarif_fixes import sarif_edits

        return to_sarif(result, version=__version__, edits=sarif_edits, docs=docs)
    if form == "junit":
        from shardwise.diagnostics.services.junit import to_junit

        return to_junit(result)
    if form == "github":
        from shardwise.diagnostics.services.annotations import to_github

        return to_github(result)
    from shardwise.diagnostics.text import render_result

    shown = screen(color)
    return render_result(result, color=shown.color, width=shown.width, limits=limits)
