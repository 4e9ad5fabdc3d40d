"""Which fixes together mend a program? One for each finding is made, and what that leaves is mended in another round.

Two mistakes may hide each other, and a fix may be one of several steps: a call that is admitted now gives its result a
type, and what is wrong with that is found in the next round. Combinations are tried in the order of how far they are
from what is offered first; every one is checked, and what is clean is compared with one rank.
"""

from __future__ import annotations

import functools
import heapq
import itertools
import os
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from shardwise.diagnostics.finding import Finding
from shardwise.diagnostics.fix import Edit, Fix
from shardwise.diagnostics.result import ExitCode, RunResult
from shardwise.host.overlay import is_of_library
from shardwise.rewriting.editing import edited
from shardwise.rewriting.file_edit import FileEdit, read_source

MOST_TRIED = 16
"""Combinations of fixes that are tried."""
MOST_ROUNDS = 5
_MOST_PRODUCTS = 64
_MOST_ALONE = 3
_LEFT = -1
"""The pick of no fix for a finding."""

Texts = Mapping[str, str]
"""Files with other text than the disk has, by path."""


class Judge(Protocol):
    """What runs the program with other texts."""

    def check(self, texts: Texts) -> RunResult | None:
        """What ``check`` says; None if it cannot be run."""

    def verify(self, texts: Texts) -> Verified | None:
        """What ``verify`` says; None if there is nothing to compare with."""


@dataclass(frozen=True)
class Verified:
    """How ``verify`` ends, and in words which number differs first from one rank's, or why none was compared."""

    exit_code: int
    differs: str = ""


@dataclass(frozen=True)
class Trial:
    """A combination of fixes that was tried.

    ``checked``   how ``check`` ends after it.
    ``verified``  how ``verify`` ends after it; None if ``check`` was not clean.
    ``differs``   which number ``verify`` finds wrong first, or why it has compared none.
    """

    fixes: tuple[Fix, ...]
    edits: tuple[FileEdit, ...]
    checked: int
    verified: int | None = None
    differs: str = ""

    @property
    def is_proven(self) -> bool:
        """The types are clean, and the numbers are those of one device."""
        return self.checked == ExitCode.CLEAN and self.verified == ExitCode.CLEAN


@dataclass(frozen=True)
class _State:
    """A program on the way: its texts, the fixes that made them, and what is offered for each of its findings.

    ``at_one_place``  they are all about one call, so that one of them may be the cause of the others.
    """

    texts: dict[str, str]
    fixes: tuple[Fix, ...]
    offered: tuple[tuple[Fix, ...], ...]
    round: int
    at_one_place: bool


def candidates(result: RunResult) -> list[tuple[Finding, tuple[Fix, ...]]]:
    """The errors whose repairs are edits of files, with these."""
    home = os.path.dirname(os.path.realpath(result.script)) if result.script.endswith(".py") else ""
    folders = tuple(f"{folder.rstrip(os.sep)}{os.sep}" for folder in (os.path.realpath(os.getcwd()), home) if folder)
    editable = functools.cache(functools.partial(_is_editable, folders))
    found = []
    for finding in result.errors:
        fixes = tuple(fix for fix in _fixes(finding) if all(editable(edit.location.file) for edit in fix.edits))
        if fixes:
            found.append((finding, fixes))
    return found


def _is_editable(folders: tuple[str, ...], file: str) -> bool:
    """Is it a file of the program, which lies in one of the folders, and not of a package that is installed there?

    And one whose text can be read.
    """
    if is_of_library(file) or not os.path.realpath(file).startswith(folders):
        return False
    try:
        read_source(Path(file))
    except (OSError, UnicodeDecodeError):
        return False
    return True


def _fixes(finding: Finding) -> Iterator[Fix]:
    """Those for all places of the finding, and those that mend each place in its own way."""
    yield from finding.fixes
    if finding.alike and len(finding.fixes) < len(finding.alike[0].fixes):
        for fixes in zip(*(place.fixes for place in finding.alike), strict=False):
            edits = tuple(dict.fromkeys(edit for fix in fixes for edit in fix.edits))
            yield Fix(fixes[0].help, edits, any(fix.choice for fix in fixes))


def search(result: RunResult, judge: Judge, tell: Callable[[str], None]) -> Iterator[Trial]:
    """What becomes of the program with combinations of fixes, until one is proven."""
    number, tried = itertools.count(), itertools.count(1)
    queue: list[tuple[int, int, _State, tuple[int, ...]]] = []

    def push(cost: int, state: _State) -> None:
        counts = [len(fixes) for fixes in state.offered]
        alone = _alone(counts) if state.at_one_place else ()
        for extra, picks in (*_selections(counts), *alone):
            heapq.heappush(queue, (cost + extra, next(number), state, picks))

    found = candidates(result)
    if found:
        push(0, _State({}, (), *_offers(found, 1)))
    seen: list[dict[str, str]] = []
    while queue:
        cost, _, state, picks = heapq.heappop(queue)
        fixes = [fixes[pick] for fixes, pick in zip(state.offered, picks, strict=True) if pick != _LEFT]
        texts, made = _together(fixes, state.texts)
        if texts in seen or not made:
            continue
        seen.append(texts)
        at = next(tried)
        if at > MOST_TRIED:
            return
        tell(f"trying combination {at} of fixes")
        done = tuple(dict.fromkeys((*state.fixes, *made)))
        trial, after = _try(judge, done, texts, tell, f"combination {at}")
        if trial.is_proven:
            yield from _without_needless(trial, judge, tell) if state.round == 1 else (trial,)
            return
        yield trial
        if after is not None and trial.checked == ExitCode.FINDINGS and state.round < MOST_ROUNDS:
            found = candidates(after)
            if found:
                push(cost + 1, _State(texts, done, *_offers(found, state.round + 1)))


def _try(
    judge: Judge, fixes: tuple[Fix, ...], texts: dict[str, str], tell: Callable[[str], None], name: str
) -> tuple[Trial, RunResult | None]:
    """What becomes of the program with these texts, which these fixes have made, and what ``check`` says of it."""
    after = judge.check(texts)
    checked = ExitCode.BROKEN if after is None else after.exit_code
    numbers = None
    if checked == ExitCode.CLEAN:
        tell(f"comparing the numbers of {name} with one rank's")
        numbers = judge.verify(texts)
    verified, differs = (None, "") if numbers is None else (numbers.exit_code, numbers.differs)
    return Trial(fixes, _file_edits(texts), checked, verified, differs), after


def _without_needless(proven: Trial, judge: Judge, tell: Callable[[str], None]) -> Iterator[Trial]:
    """A combination of few fixes that is proven, last, without those that it does not need.

    One mistake may be two findings, each with a fix. What is tried on the way comes before it.
    """
    best = proven
    for fix in proven.fixes if len(proven.fixes) <= _MOST_ALONE else ():
        rest = tuple(one for one in best.fixes if one is not fix)
        texts, made = _together(rest, {})
        if rest and len(made) == len(rest):
            tell("trying to leave out a fix")
            less, _ = _try(judge, rest, texts, tell, "fewer fixes")
            if less.is_proven:
                best = less
            else:
                yield less
    yield best


def _offers(
    found: Sequence[tuple[Finding, tuple[Fix, ...]]], round: int
) -> tuple[tuple[tuple[Fix, ...], ...], int, bool]:
    """What a state says of its findings."""
    return _shared_first([fixes for _, fixes in found]), round, len({finding.location for finding, _ in found}) == 1


def _shared_first(offered: Sequence[tuple[Fix, ...]]) -> tuple[tuple[Fix, ...], ...]:
    """What is offered for most findings stands first for each: one sum where a value is made, not one for each use."""
    counts = Counter(fix for fixes in offered for fix in dict.fromkeys(fixes))
    return tuple(tuple(sorted(fixes, key=lambda fix: -counts[fix])) for fixes in offered)


def _selections(counts: Sequence[int]) -> Iterator[tuple[int, tuple[int, ...]]]:
    """Which fix to take for each finding, given how many each has, with how far that is from the first of each."""
    total = 1
    for count in counts:
        total *= count
    if total <= _MOST_PRODUCTS:
        yield from ((sum(picks), picks) for picks in itertools.product(*map(range, counts)))
        return
    for pick in range(max(counts)):
        yield pick, tuple(min(pick, count - 1) for count in counts)
    for at, count in enumerate(counts):
        yield from ((pick, tuple(pick if at == one else 0 for one in range(len(counts)))) for pick in range(1, count))


def _alone(counts: Sequence[int]) -> Iterator[tuple[int, tuple[int, ...]]]:
    """The first fix of one finding alone, of two or three."""
    if 1 < len(counts) <= _MOST_ALONE:
        yield from ((1, tuple(0 if at == one else _LEFT for one in range(len(counts)))) for at in range(len(counts)))


def _together(fixes: Sequence[Fix], texts: Texts) -> tuple[dict[str, str], list[Fix]]:
    """The texts with as many of the fixes, the first ones first, as make a program together, and which they are."""
    made: list[Fix] = []
    after = dict(texts)
    for fix in dict.fromkeys(fixes):
        more = _edited([*made, fix], texts)
        if more is not None:
            made.append(fix)
            after = dict(texts) | more
    return after, made


def _edited(fixes: Sequence[Fix], texts: Texts) -> dict[str, str] | None:
    by_file: dict[str, list[Edit]] = defaultdict(list)
    for fix in fixes:
        for edit in fix.edits:
            by_file[edit.location.file].append(edit)
    changed = {}
    for file, edits in by_file.items():
        before = texts.get(file) or read_source(Path(file))
        after = edited(before, edits)
        if after is None:
            return None
        changed[file] = after
    return changed


def _file_edits(texts: Texts) -> tuple[FileEdit, ...]:
    return tuple(FileEdit(Path(file), read_source(Path(file)), text) for file, text in texts.items())


def edits_of(fixes: Sequence[Fix]) -> tuple[FileEdit, ...] | None:
    """The files that the fixes change; None if together they make no program."""
    texts = _edited(fixes, {})
    return None if texts is None else _file_edits(texts)
