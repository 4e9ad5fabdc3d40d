"""Is every fix that a finding offers a fix? It is made in the source of every wrong program, which is checked again."""

from __future__ import annotations

import linecache
import os
from pathlib import Path
from unittest.mock import patch

import pytest

from shardwise.diagnostics.finding import Finding
from shardwise.diagnostics.fix import Fix, Insert, Remove, Replace, Wrap
from shardwise.host.overlay import overlay_of
from shardwise.rewriting.editing import edited

from .test_programs import WRONG, run


def fixed(path: Path, fix: Fix) -> str | None:
    """The text of the program with the fix; None if it is about another file, or cannot be made."""
    if any(edit.location.file != str(path) for edit in fix.edits):
        return None
    return edited(path.read_text(), fix.edits)


@pytest.mark.slow
def test_there_are_fixes() -> None:
    offered = [fix for path in WRONG for finding in run(path).findings for fix in finding.fixes]
    assert len(offered) > 40
    assert {type(edit) for fix in offered for edit in fix.edits} >= {Wrap, Replace, Insert, Remove}


@pytest.mark.slow_but_one_in(4)
@pytest.mark.one_in(6)
@pytest.mark.parametrize("path", WRONG, ids=lambda path: path.stem)
def test_after_a_fix_its_finding_is_gone(path: Path) -> None:
    before = run(path)

    def key(finding: Finding) -> object:
        return finding.code, finding.axis, finding.op, finding.location.line if finding.location is not None else 0

    for finding in before.findings:
        for fix in finding.fixes:
            text = fixed(path, fix)
            if text is None:
                continue
            added = len(text.splitlines()) - len(path.read_text().splitlines())
            with overlay_of({str(path): text}) as variables, patch.dict(os.environ, variables):
                after = run(path)
            found = {(code, axis, op, line - added) for code, axis, op, line in map(key, after.findings)}
            told = f"{path.name}: {finding.headline}\n{fix.help}\n" + "\n".join(map(str, after.findings))
            assert key(finding) not in found, told
            assert after.stopped is None or before.stopped is not None, told


def test_after_a_trial_the_text_of_the_disk_is_shown_and_read(tmp_path: Path) -> None:
    path = tmp_path / "program.py"
    path.write_text("import os\n", "utf-8")
    with overlay_of({str(path): "import sys\n"}) as variables, patch.dict(os.environ, variables):
        run(path)
        assert linecache.getlines(str(path)) == ["import sys\n"]
    assert linecache.getlines(str(path)) == ["import os\n"]
