"""What is reported of what was found: severities, ignore comments, chosen codes, the baseline. Whatever is held back is
part of the result.
"""

from __future__ import annotations

import fnmatch
import os
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from shardwise.diagnostics.causes import by_cause
from shardwise.diagnostics.finding import Finding
from shardwise.diagnostics.result import HeldBack, HeldBackBy, RunResult

from .baseline import Known, known, read_baseline
from .ignore_comments import IgnoreComment, comments_in
from .selection import Selection, codes_named
from .settings import Settings

ONLY_STRICT = {"SW102", "SW103", "SW207", "SW301", "SW302", "SW303", "SW603", "SW613", "SW615"}
"""Codes that a permissive run may not give: whether an ignore comment is needed for one, only a strict run says."""


@dataclass(frozen=True)
class Policy:
    """The settings of a project and what the command line says besides, which stands above them.

    ``select``, ``ignore``  of the command line: what it selects replaces what the file selects; what it ignores is
                            ignored too.
    ``baseline``            the file of known findings, read when it is needed.
    """

    settings: Settings = field(default_factory=Settings)
    select: Selection = field(default_factory=Selection)
    ignore: Selection = field(default_factory=Selection)
    baseline: Path | None = None

    def require(self) -> None:
        """SW905, before anything is run, for a baseline that cannot be read."""
        if self.baseline is not None:
            read_baseline(self.baseline)

    def applied(
        self, result: RunResult, *, strict: bool = False, local: bool = True, judges_comments: bool = True
    ) -> RunResult:
        """The result with severities as they are configured, findings held back as they are told to be,
        and those with one cause as one.

        ``strict``, ``local``  how types were checked: it decides which codes could have been found.
        ``judges_comments``    whether an ignore comment that nothing needs is a finding (SW920, SW921).

        Errors: SW905 for a baseline that cannot be read.
        """
        baseline = {} if self.baseline is None else read_baseline(self.baseline)
        left = Counter({print_: entry.count for print_, entry in baseline.items()})
        used: set[tuple[IgnoreComment, str]] = set()
        reported: list[Finding] = []
        held_back = list(result.held_back)
        for finding in result.findings:
            held = self._held_back(finding, used) or self._known(finding, baseline, left)
            if held is None:
                reported.append(self._rated(finding))
            else:
                held_back.append(held)
        if judges_comments:
            for finding in self._needless(result, used, strict, local):
                held = self._by_code(finding)
                if held is None:
                    reported.append(self._rated(finding))
                else:
                    held_back.append(held)
        gone = tuple(
            f"{entry}" + (f" ({left[print_]} times)" if left[print_] > 1 else "")
            for print_, entry in baseline.items()
            if left[print_]
        )
        return replace(result, findings=by_cause(reported), held_back=tuple(held_back), gone=gone)

    def _rated(self, finding: Finding) -> Finding:
        severity = self.settings.severity.get(finding.code)
        return finding if severity in (None, finding.severity) else replace(finding, configured=severity)

    def _held_back(self, finding: Finding, used: set[tuple[IgnoreComment, str]]) -> HeldBack | None:
        for comment, code in _comments_about(finding):
            used.add((comment, code))
            return HeldBack(finding, HeldBackBy.COMMENT, comment.reason)
        return self._by_code(finding)

    def _by_code(self, finding: Finding) -> HeldBack | None:
        chosen = self.select or self.settings.select
        ignored = self.ignore | self.settings.ignore
        if finding.code in ignored or (chosen and finding.code not in chosen):
            return HeldBack(finding, HeldBackBy.CODE)
        for pattern, codes in self.settings.per_file_ignores:
            if finding.code in codes and self._is_in(finding, pattern):
                return HeldBack(finding, HeldBackBy.FILE, pattern)
        return None

    def _is_in(self, finding: Finding, pattern: str) -> bool:
        if finding.location is None:
            return False
        file = os.path.realpath(finding.location.file)
        path = os.path.relpath(file, os.path.realpath(self.settings.folder)).replace(os.sep, "/")
        return fnmatch.fnmatch(path, pattern) or fnmatch.fnmatch(os.path.basename(file), pattern)

    def _known(self, finding: Finding, baseline: dict[str, Known], left: Counter[str]) -> HeldBack | None:
        if self.baseline is None:
            return None
        print_ = known(finding, self.baseline.parent).fingerprint
        if left[print_] <= 0:
            return None
        left[print_] -= 1
        return HeldBack(finding, HeldBackBy.BASELINE)

    def _needless(
        self, result: RunResult, used: set[tuple[IgnoreComment, str]], strict: bool, local: bool
    ) -> Iterator[Finding]:
        """Ignore comments that say nothing, and those that held nothing back although their line ran."""
        could_be_found = _codes_that_could_be_found(result, strict, local)
        for seen in result.ignores:
            comment = next((one for one in comments_in(seen.location.file) if one.location == seen.location), None)
            if comment is None:
                continue
            if comment.lines is None:
                yield _bad(comment, "this ignore comment stands on no statement", "put it at the end of a line of it")
                continue
            meant = _meant(comment, result)
            if comment.verb:
                said = f"shardwise knows no comment {comment.verb!r}, so nothing is held back; did you mean ignore?"
                yield _bad(comment, said, meant or f"# shardwise: ignore[{', '.join(comment.words)}] and why")
                continue
            if comment.reason.startswith("["):
                help = meant or f"# shardwise: ignore{comment.reason.split()[0].rstrip(',')}] and why"
                yield _bad(comment, "this ignore comment does not close its bracket, so it names no code", help)
                continue
            if not comment.words:
                yield _bad(comment, "this ignore comment names no code", meant or "# shardwise: ignore[SW113] and why")
                continue
            for word in comment.words:
                try:
                    codes = codes_named(word)
                except ValueError as error:
                    yield _bad(comment, f"in this ignore comment {error}", meant or "shardwise explain lists the codes")
                    continue
                needed = any((comment, code) in used for code in codes)
                if seen.ran and not needed and all(map(could_be_found, codes)):
                    yield Finding(
                        "SW920",
                        f"nothing on this line is {word}: the ignore comment is not needed",
                        comment.location,
                        help=(f"leave {word} out of the comment",),
                    )


def _bad(comment: IgnoreComment, message: str, help: str) -> Finding:
    return Finding("SW921", message, comment.location, help=(help,))


def _meant(comment: IgnoreComment, result: RunResult) -> str:
    """The comment with the codes of what was found on its lines; empty if nothing was."""
    found = {finding.code for finding in result.findings for one in _comments_at(finding) if one == comment}
    return f"# shardwise: ignore[{', '.join(sorted(found))}] and why" if found else ""


def _comments_about(finding: Finding) -> Iterator[tuple[IgnoreComment, str]]:
    """The comments that name the finding's code on a line of the statement that it is in."""
    for comment in _comments_at(finding):
        if not comment.verb and any(finding.code in _codes(word) for word in comment.words):
            yield comment, finding.code


def _comments_at(finding: Finding) -> Iterator[IgnoreComment]:
    """The comments on a line of the statement that the finding is in."""
    place = finding.location
    if place is None:
        return
    for comment in comments_in(place.file):
        if comment.lines is not None and comment.lines[0] <= place.line <= comment.lines[1]:
            yield comment


def _codes(word: str) -> tuple[str, ...]:
    try:
        return codes_named(word)
    except ValueError:
        return ()


def _codes_that_could_be_found(result: RunResult, strict: bool, local: bool) -> Callable[[str], bool]:
    """Whether a run like this one gives a code wherever it is deserved: not if it ended early or looked at less."""

    def could_be(code: str) -> bool:
        if result.stopped is not None or not result.checked_ops:
            return False
        if code.startswith("SW4") and local:
            return False
        if code.startswith("SW5") and not result.ranks:
            return False
        return strict or code not in ONLY_STRICT

    return could_be
