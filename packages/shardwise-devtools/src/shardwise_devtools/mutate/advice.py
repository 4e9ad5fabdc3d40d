"""What becomes of a mutant after a fix that a finding in it offers? Each is made by itself, and judged by numbers.

A fix may leave another finding. It may not make an accepted program of a rejected one whose numbers are wrong.
"""

from __future__ import annotations

import enum
import functools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from shardwise.diagnostics.finding import Finding
from shardwise.diagnostics.fix import Fix
from shardwise.host.worker_pool import worker_pool
from shardwise.rewriting.editing import edited
from shardwise.rewriting.file_edit import read_source

from .judge import Numbers
from .measure import MODES, Bench, Broken, errors_of, shown
from .operators import Mutant


class After(enum.Enum):
    """How a mutant is after a fix."""

    RIGHT = "clean and right"
    WRONG = "clean and wrong"
    """The fix hides a mistake."""
    CHOSEN = "a choice, clean and wrong"
    """It says what only the author knows, and that is not so: ``--fix`` makes it where the numbers prove it."""
    REJECTED = "still a finding"
    LOUD = "raises or hangs"
    UNMADE = "no edit"
    """It would be no Python, or is of a file that is none."""


@dataclass(frozen=True)
class Tried:
    """A fix that was made in a mutant.

    ``finding``  what offered it, as ``SW201 at train.py:57``; ``modes`` under which types.
    ``detail``   what the numbers, or the checker, say after it.
    """

    mutant: Mutant
    finding: str
    fix: Fix
    modes: tuple[str, ...]
    after: After
    detail: str = ""


def tried_on(bench: Bench, mutant: Mutant) -> list[Tried]:
    """Every fix of every finding in ``mutant``, made by itself; those that make the same text are one."""
    try:
        found = {mode: bench.findings(mutant.texts, mode) for mode in MODES}
    except Broken:
        return []  # it raises by itself, which is no silent mistake
    modes: dict[tuple[str, Fix], list[str]] = {}
    offered: dict[Fix, Finding] = {}
    for mode, findings in found.items():
        for finding in findings:
            for fix in finding.fixes:
                offered.setdefault(fix, finding)
                known = modes.setdefault((finding.code, fix), [])
                known += [mode] if mode not in known else []
    done: dict[tuple[tuple[Path, str], ...], tuple[After, str]] = {}
    tried = []
    for fix, finding in offered.items():
        texts = with_fix(mutant.texts, fix)
        key = tuple(sorted(texts.items())) if texts is not None else ()
        if key not in done:
            done[key] = (After.UNMADE, "") if texts is None else outcome(bench, texts)
        after, detail = done[key]
        if fix.choice and after is After.WRONG:
            after = After.CHOSEN
        tried.append(Tried(mutant, shown(finding), fix, tuple(modes[finding.code, fix]), after, detail))
    return tried


def with_fix(texts: Mapping[Path, str], fix: Fix) -> dict[Path, str] | None:
    """``texts``, and what the disk has for other files, with the edits of ``fix``; None if they cannot be made."""
    made = dict(texts)
    for file in dict.fromkeys(edit.location.file for edit in fix.edits):
        path = Path(file).resolve()
        if not path.is_file():
            return None
        edits = [edit for edit in fix.edits if edit.location.file == file]
        text = edited(texts.get(path) or read_source(path), edits)
        if text is None:
            return None
        made[path] = text
    return made


def outcome(bench: Bench, texts: Mapping[Path, str]) -> tuple[After, str]:
    """What the checker, and then the numbers, say of the program with these texts."""
    try:
        for mode in MODES:
            if errors := errors_of(bench.findings(texts, mode)):
                return After.REJECTED, shown(errors[0])
        measured = bench.measured(texts)
    except Broken as error:
        return After.LOUD, str(error)
    wrong = measured.numbers is Numbers.DIFFERENT
    return (After.WRONG if wrong else After.RIGHT), measured.detail


def try_all(benches: Sequence[Bench], mutants: Sequence[tuple[int, Mutant]], jobs: int) -> Iterator[list[Tried]]:
    """What becomes of each mutant, in their order, ``jobs`` at a time; a mutant comes with the number of its bench."""
    with worker_pool(jobs, "fork", functools.partial(_start, benches)) as pool:
        yield from pool.map(_try, mutants)


_benches: Sequence[Bench] = ()


def _start(benches: Sequence[Bench]) -> None:
    global _benches
    _benches = benches
    torch.set_num_threads(1)


def _try(of: tuple[int, Mutant]) -> list[Tried]:
    number, mutant = of
    return tried_on(_benches[number], mutant)


def summary(mutants: int, tried: Sequence[Tried]) -> str:
    """One line of counts."""
    counts = Counter(one.after for one in tried)
    return f"{len(tried)} fixes tried in {mutants} mutants: " + ", ".join(f"{counts[one]} {one.value}" for one in After)


def told(one: Tried) -> str:
    """A fix and what came of it, for a person."""
    mutant = one.mutant
    return (
        f"{one.after.value}: {mutant.operator} at {mutant.place}\n  - {mutant.before}\n  + {mutant.after}\n"
        f"  {one.finding} ({', '.join(one.modes)}): {one.fix.help}\n  {one.detail}"
    )
