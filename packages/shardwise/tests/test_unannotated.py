"""Is a program that knows nothing of this package judged rightly? Right ones have no finding, bugs in them are found.

``make nightly`` runs every program and every bug, other runs a selection.
"""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from shardwise.cli.options.mesh_option import MeshParam
from shardwise.diagnostics.result import ExitCode
from shardwise.host.program import Program
from shardwise.verifier.records.options import VerifyOptions
from shardwise.verifier.records.subject import Script
from shardwise.verifier.run import verify_subject
from shardwise.verifier.text import Verdict

FOLDER = Path(__file__).parent / "programs" / "unannotated"
RIGHT = sorted((FOLDER / "right").glob("*.py"))


def table_of_bugs() -> Any:
    folder = FOLDER / "bugs"
    spec = importlib.util.spec_from_file_location(
        "unannotated_bugs", folder / "__init__.py", submodule_search_locations=[str(folder)]
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # its modules look it up
    spec.loader.exec_module(module)
    return module.BUGS


BUGS = table_of_bugs()


def mesh_of(source: str) -> dict[str, int]:
    found = re.search(r"mesh: (\S+)", source.splitlines()[0])
    assert found, "the first line says for which mesh the program is"
    return dict(MeshParam().convert(found[1], None, None).axes)


def verdict_on(path: Path, *, narrow: bool = False) -> Verdict:
    options = VerifyOptions(strict=False, timeout_s=120.0, narrow=narrow)
    return verify_subject(Script(Program(path=str(path))), mesh_of(path.read_text()), options)


@pytest.mark.parametrize("path", RIGHT, ids=lambda path: path.stem)
def test_programs_are_as_strangers_write_them(path):
    assert "shardwise" not in path.read_text()


def test_every_bug_changes_one_place_of_a_right_program():
    sources = {path.stem: path.read_text() for path in RIGHT}
    for bug in BUGS:
        compile(bug.applied(sources[bug.program]), bug.program, "exec")
    assert len({(bug.program, bug.what) for bug in BUGS}) == len(BUGS)
    assert {bug.program for bug in BUGS} == set(sources)


def test_the_guide_says_how_many_there_are():
    guide = (Path(__file__).parents[3] / "docs" / "guide" / "verify.md").read_text()
    assert f"{len(RIGHT)} right programs and {len(BUGS)} one-change bugs" in " ".join(guide.split())


@pytest.mark.slow_but_one_in(4)
@pytest.mark.processes
@pytest.mark.one_in(32)
@pytest.mark.parametrize("path", RIGHT, ids=lambda path: path.stem)
def test_a_right_program_is_verified_without_a_word_of_types(path):
    verdict = verdict_on(path)
    assert verdict.exit_code is ExitCode.CLEAN, str(verdict)
    compared = verdict.numbers.equal
    assert compared > 0


@pytest.mark.slow_but_one_in(4)
@pytest.mark.processes
@pytest.mark.one_in(85)
@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: f"{bug.program}: {bug.what}")
def test_a_bug_is_found_where_it_is(bug, tmp_path):
    path = tmp_path / f"{bug.program}.py"
    path.write_text(bug.applied((FOLDER / "right" / path.name).read_text()))
    verdict = verdict_on(path, narrow=bool(bug.module))
    if bug.unsure:
        assert verdict.exit_code is ExitCode.INCONCLUSIVE, str(verdict)
        assert re.search(bug.unsure, str(verdict)), str(verdict)
        return
    if bug.missed:
        assert verdict.exit_code is ExitCode.CLEAN, f"it is found now: {verdict}"
        return
    assert verdict.exit_code is ExitCode.FINDINGS, str(verdict)
    assert re.search(bug.at, str(verdict.numbers.disagreements[0].key)), str(verdict)
    if bug.module:
        assert verdict.numbers.module is not None, str(verdict)
        assert re.match(bug.module, verdict.numbers.module.key.name), str(verdict)


@pytest.mark.slow_but_one_in(4)
@pytest.mark.processes
@pytest.mark.usefixtures("warm_python")
@pytest.mark.one_in(16)
@pytest.mark.parametrize("path", RIGHT, ids=lambda path: path.stem)
def test_a_right_program_is_checked_without_a_false_alarm(path):
    sizes = ",".join(f"{name}={size}" for name, size in mesh_of(path.read_text()).items())
    command = [sys.executable, "-m", "shardwise", "check", str(path), "--mesh", sizes, "--format", "json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode != ExitCode.FINDINGS, done.stdout
    assert json.loads(done.stdout)["findings"] == []
