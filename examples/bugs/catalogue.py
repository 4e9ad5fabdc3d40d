"""Which bugs are there? Reads ``catalogue/*.toml``; a bug is one replacement in one file of a program.

id, title, story    its name; the change in a phrase; what goes wrong and where it is known from
program             what it is put into, of ``programs.py``; left out, the GPT
file, old, new      the replacement; ``old`` must occur exactly once, so a bug cannot outlive the code it is about.
                    ``file`` may be left out if it is the program's script
args                options of the program under which it bites
expect              {code, line[, file]}: what ``shardwise check`` must say first, and text of the line it must name
expect_global       the same for ``shardwise check --global``; left out, it must say the same
expect_ranks        the same for ``shardwise check --ranks all``, for a bug that is one of ranks that diverge: it hangs
unseen              in place of ``expect``: why local types cannot see it; without ``expect_global``, why no types can.
                    What neither types nor several ranks show, ``shardwise verify`` must find in the numbers
typical             true for those that the README shows
"""

import shutil
import tomllib
from dataclasses import dataclass
from pathlib import Path

from programs import PROGRAMS

HERE = Path(__file__).resolve().parent
SECTIONS = (
    "tensor_parallel",
    "sequence_parallel",
    "vocabulary",
    "data_parallel",
    "training_step",
    "expert_parallel",
    "uniformity",
)


@dataclass(frozen=True)
class Expected:
    """A finding: its code, the file, and a piece of the text of the line it names."""

    code: str
    line: str
    file: str


@dataclass(frozen=True)
class Bug:
    id: str
    section: str
    title: str
    story: str
    file: str
    old: str
    new: str
    program: str = "gpt"
    typical: bool = False
    args: tuple[str, ...] = ()
    expect: Expected | None = None
    expect_global: Expected | None = None
    expect_ranks: Expected | None = None
    unseen: str | None = None

    def __post_init__(self) -> None:
        if (self.expect is None) == (self.unseen is None):
            raise ValueError(f"bug {self.id!r} must say either what is expected or why it is unseen")

    def expected(self, mode: str) -> Expected | None:
        """What the checker must say first in ``mode``; None if nothing."""
        if mode == "ranks":
            return self.expect_ranks
        return self.expect_global or self.expect if mode == "global" else self.expect

    @property
    def hangs(self) -> bool:
        """Do its ranks stop in the middle, waiting for each other? Then there are no numbers to compare."""
        return self.expect_ranks is not None

    @property
    def caught_by(self) -> str:
        """What finds it: ``types``, ``types (global)``, ``uniformity``, or, where those find nothing, ``verify``."""
        if self.expect is not None:
            return "types"
        return "types (global)" if self.expect_global else "uniformity" if self.expect_ranks else "verify"


def load() -> list[Bug]:
    """All bugs, in the order of the table."""
    bugs = []
    for section in SECTIONS:
        for entry in tomllib.loads((HERE / "catalogue" / f"{section}.toml").read_text())["bug"]:
            entry.setdefault("file", PROGRAMS[entry.get("program", "gpt")].script)
            for key in {"expect", "expect_global", "expect_ranks"} & set(entry):
                entry[key] = Expected(**{"file": entry["file"], **entry[key]})
            bugs.append(Bug(section=section, **{**entry, "args": tuple(entry.get("args", ()))}))
    return bugs


def apply(bug: Bug | None, directory: Path, program: str = "gpt") -> Path:
    """Copy the bug's program, or ``program`` if there is no bug, to ``directory``; returns the path of its script."""
    original = PROGRAMS[bug.program if bug else program]
    shutil.copytree(original.folder, directory, ignore=shutil.ignore_patterns("__pycache__"))
    if bug is not None:
        path = directory / bug.file
        path.write_text(changed(bug, path.read_text()))
    return directory / original.script


def changed(bug: Bug, source: str) -> str:
    """The text of the bug's file with the bug in it."""
    if (count := source.count(bug.old)) != 1:
        raise ValueError(f"bug {bug.id!r}: its old text occurs {count} times in {bug.file}, not once")
    return source.replace(bug.old, bug.new)


def expected_place(expected: Expected, directory: Path) -> tuple[str, int]:
    """File name and line number of the line that ``expected`` marks in the program at ``directory``."""
    lines = (directory / expected.file).read_text().splitlines()
    found = [number for number, text in enumerate(lines, 1) if expected.line in text]
    if len(found) != 1:
        raise ValueError(f"{expected.line!r} marks {len(found)} lines of {expected.file}, not one")
    return expected.file, found[0]
