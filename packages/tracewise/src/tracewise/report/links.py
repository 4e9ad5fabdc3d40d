"""Where things are in a report, and how paths of the user's code are shortened."""

from __future__ import annotations

import os.path
import re

from tracewise.model.entities import Compilation, Frame, Record, Run
from tracewise.report.folder import safe_name

LINK_TREE = re.compile(r"^.*#link-tree/")
SEED_FOLDER = re.compile(r"^.*-seed-nspid[^/]*/")
MD5 = re.compile(r"^[0-9a-f]{32}$")


class Links:
    """Names of pages, relative to the root of the report."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self._common = _common_folder(run)

    def compilation(self, unit: Compilation) -> str:
        """The page of a compilation; of what has no id, for the empty one."""
        return f"c/{safe_name(unit.process)}/{unit.id.compilation.folder}.html"

    def payload(self, record: Record) -> str:
        """The page of a payload: equal payloads share one."""
        if MD5.match(record.md5) and not record.is_damaged:
            return f"p/{record.md5[:2]}/{record.md5}.html"
        return f"p/x/{record.file}-{record.offset}.html"

    def short(self, file: str) -> str:
        """The path relative to what all of the user's files have in common."""
        for pattern in (LINK_TREE, SEED_FOLDER):
            shortened = pattern.sub("", file)
            if shortened != file:
                return shortened
        if self._common and file.startswith(self._common):
            return file[len(self._common) :]
        for folder in ("site-packages/", "/lib/"):
            _, found, rest = file.rpartition(folder)
            if found and (folder != "/lib/" or rest.startswith("python3")):
                return rest
        return file

    def place(self, frame: Frame | None) -> str:
        return f"{self.short(frame.file)}:{frame.line}" if frame else ""


def _common_folder(run: Run) -> str:
    """The longest folder that all files of the user's share, with a slash at its end."""
    stacks = [unit.stack for unit in run.compilations]
    stacks += [fact.stack for fact in run.export_facts]
    stacks += [symbol.stack for rank in run.ranks for symbol in rank.outside.symbols]
    files = {frame.file for stack in stacks for frame in stack if not frame.is_library and os.path.isabs(frame.file)}
    if not files:
        return ""
    folder = os.path.commonpath([os.path.dirname(file) for file in files])
    return folder.rstrip("/") + "/" if folder != "/" else ""
