"""Verdicts on mutants, kept as they come: a run that is cut off goes on where it was.

One file a program, under ``build/``: its first line is the state of everything that verdicts follow from, each other
line a verdict. In another state it is begun anew.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path

import torch

import shardwise

from .corpus import ROOT, RightProgram
from .files import files_of
from .judge import Measured, Numbers, Said, Verdict
from .operators import Mutant

FOLDER = ROOT / "build" / "mutants"
HOMES = (Path(shardwise.__file__).parent, Path(__file__).parent)
"""Where the code is that verdicts follow from, beside the program's."""


class KeptVerdicts:
    """The verdicts on the mutants of one program, in the file at ``path``.

    ``state``  of what they follow from; those of another one are forgotten.
    """

    def __init__(self, path: Path, state: str) -> None:
        self.path = path
        self._known: dict[str, Verdict] = {}
        lines = path.read_text("utf-8").splitlines() if path.is_file() else []
        if lines[:1] == [state]:
            self._known = dict(_read(lines[1:]))
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(state, "utf-8")

    @staticmethod
    def of(subject: RightProgram, folder: Path | None = None) -> KeptVerdicts:
        """Those on the mutants of a program."""
        return KeptVerdicts((folder or FOLDER) / f"{subject.name}.jsonl", state_of(subject))

    def __contains__(self, mutant: Mutant) -> bool:
        return _key(mutant) in self._known

    def __getitem__(self, mutant: Mutant) -> Verdict:
        return self._known[_key(mutant)]

    def keep(self, mutant: Mutant, verdict: Verdict) -> None:
        """Write it down at once."""
        self._known[_key(mutant)] = verdict
        measured, said = verdict
        line = {
            "mutant": _key(mutant),
            "numbers": measured.numbers.value,
            "detail": measured.detail,
            "unchanged": measured.unchanged,
            "said": {one.mode: one.findings for one in said},
        }
        with self.path.open("a", encoding="utf-8") as file:
            file.write("\n" + json.dumps(line))  # what a cut-off has left of the line before stays apart


def state_of(subject: RightProgram) -> str:
    """A digest of the program and how it is run, of shardwise and this package, and the version of torch."""
    sources: Mapping[Path, str] = {source.path: source.text for source in files_of(subject.path)}
    digest = hashlib.sha256(f"{torch.__version__} {subject.mesh} {subject.more}".encode())
    for path in sorted({*sources, *(file for home in HOMES for file in home.rglob("*.py"))}):
        digest.update(f"\n{path.name} ".encode() + path.read_bytes())
    return digest.hexdigest()


def _key(mutant: Mutant) -> str:
    return hashlib.sha256(f"{mutant.operator} {mutant.source.path.name}\n{mutant.text}".encode()).hexdigest()


def _read(lines: list[str]) -> Iterator[tuple[str, Verdict]]:
    for line in lines:
        try:
            found = json.loads(line)
        except json.JSONDecodeError:  # whoever wrote it was cut off
            continue
        measured = Measured(Numbers(found["numbers"]), found["detail"], found["unchanged"])
        yield found["mutant"], (measured, tuple(Said(mode, tuple(said)) for mode, said in found["said"].items()))
