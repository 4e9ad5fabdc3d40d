"""The page of two runs compared: one HTML file with the style of the report, and the same as JSON."""

from __future__ import annotations

from pathlib import Path

from tracewise.compare.differences import RunDiff
from tracewise.read.json_text import to_json
from tracewise.report.folder import new_folder
from tracewise.report.html import environment, page_bytes
from tracewise.report.payload_pages import copy_assets


def write_diff(diff: RunDiff, target: Path, *, overwrite: bool = False) -> None:
    """Writes ``index.html`` and ``diff.json`` to the folder ``target``."""
    with new_folder(target, overwrite=overwrite) as folder:
        copy_assets(folder)
        text = environment().get_template("diff.html").render(diff=diff, before=diff.before, after=diff.after)
        folder.write("index.html", page_bytes(text))
        folder.write("diff.json", to_json(diff.as_json()))
