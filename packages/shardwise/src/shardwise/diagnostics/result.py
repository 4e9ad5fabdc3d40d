"""What a run found: the value ``RunResult``, and the ``Collector`` that gathers it while the program runs.

Findings with the same code, location, operator and axis are one finding with a count, in the order of their first
occurrence: what happened first is the likelier cause.
"""

from __future__ import annotations

import enum
import shlex
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

from .codes import Severity
from .coverage import NOTHING, Coverage
from .error_text import ways_on
from .finding import ENDS_PROGRAM, Finding
from .run_record import RunRecord
from .source import Site
from .source_location import SourceLocation


class ExitCode(enum.IntEnum):
    """What the process that checked a program ends with."""

    CLEAN = 0
    """Operations were checked and none is wrong; warnings do not count."""
    FINDINGS = 1
    """At least one error was found, also if the program crashed afterwards: the error is often the reason."""
    BROKEN = 2
    """No verdict: wrong usage, the program crashed without an error, was interrupted, or nothing was checked."""
    INCONCLUSIVE = 3
    """The program ran to its end, but what it promises could not all be compared, or none of it has a type."""


NO_EXCEPTION = "nothing, but "
"""How the text of a stop begins that is no exception of the program: what follows says how it ended."""


class StopReason(enum.Enum):
    """Why a program did not run to its end."""

    SCRIPT_ERROR = "script-error"
    INTERRUPTED = "interrupted"


@dataclass(frozen=True, slots=True)
class Stop:
    """The premature end of a program: ``text`` is the exception in one line, ``location`` where in the user's code."""

    reason: StopReason
    text: str = ""
    location: SourceLocation | None = None


@dataclass(frozen=True, slots=True)
class Noted:
    """What a list of the report says, ``count`` times at ``location``: something believed, lost or passed over."""

    what: str
    location: SourceLocation | None = None
    count: int = 1


class HeldBackBy(enum.Enum):
    """Why a finding is not reported."""

    COMMENT = "comment"
    """``# shardwise: ignore[SW113]`` on its line."""
    CODE = "ignore"
    """Its code is ignored, or not among those that are selected."""
    FILE = "per-file-ignores"
    """Its code is ignored in its file."""
    BASELINE = "baseline"
    """It was known before."""


@dataclass(frozen=True, slots=True)
class HeldBack:
    """A finding that is not reported: ``reason`` is what the comment gives for it."""

    finding: Finding
    by: HeldBackBy
    reason: str = ""


@dataclass(frozen=True, slots=True)
class IgnoreSeen:
    """An ignore comment in a file of the program; ``ran``: whether its statement was reached."""

    location: SourceLocation
    ran: bool = False


@dataclass(frozen=True, slots=True)
class RunResult:
    """A finished run.

    ``findings``       grouped, each with its count.
    ``checked_ops``    operations whose operands' types were checked.
    ``unchecked_ops``  operations on tensors that were passed over because nothing was known of them.
    ``no_rule_ops``    operators that the registry does not know, with the number of calls, most frequent first.
    ``trusted``        what the verdict rests on without proof: annotations of inputs, hand-declared rules.
    ``lost``           types that were known and got lost without a call having been rejected.
    ``unchecked``      which operations were passed over, where it was noted.
    ``not_followed``   parts of the library that the installed torch does not let us follow.
    ``stopped``        why the program did not run to its end; None if it did.
    ``mesh``           the mesh as printed, e.g. ``dp=2, tp=2``.
    ``own_mesh``       the first that the program has made itself, printed alike.
    ``rank``           the rank that was checked; None if that has no meaning, or there were several.
    ``ranks``          the ranks that were checked and compared with each other, if there were several.
    ``collectives``    how many collectives and messages they issued, all together.
    ``coverage``       how many parameters and inputs have a type.
    ``record``         types per line, modules and collectives; None unless they were asked for.
    ``ignores``        the ignore comments in the files of the program.
    ``held_back``      findings that are not reported, and why.
    ``gone``           findings that the baseline knows and that were not found again, a line each.
    """

    findings: tuple[Finding, ...] = ()
    checked_ops: int = 0
    unchecked_ops: int = 0
    no_rule_ops: tuple[tuple[str, int], ...] = ()
    trusted: tuple[Noted, ...] = ()
    lost: tuple[Noted, ...] = ()
    unchecked: tuple[Noted, ...] = ()
    not_followed: tuple[str, ...] = ()
    stopped: Stop | None = None
    duration_s: float = 0.0
    mesh: str = ""
    script: str = ""
    rank: int | None = None
    ranks: tuple[int, ...] = ()
    collectives: int = 0
    coverage: Coverage = NOTHING
    record: RunRecord | None = None
    ignores: tuple[IgnoreSeen, ...] = ()
    held_back: tuple[HeldBack, ...] = ()
    gone: tuple[str, ...] = ()
    own_mesh: str = ""

    @property
    def errors(self) -> tuple[Finding, ...]:
        return tuple(finding for finding in self.findings if finding.severity is Severity.ERROR)

    @property
    def warnings(self) -> tuple[Finding, ...]:
        return tuple(finding for finding in self.findings if finding.severity is Severity.WARNING)

    @property
    def notes(self) -> tuple[Finding, ...]:
        return tuple(finding for finding in self.findings if finding.severity is Severity.NOTE)

    @property
    def ending(self) -> Finding | None:
        """Why there is no full verdict, in the form of a finding (SW910 to SW912); None if there is one."""
        if self.stopped is not None:
            code = "SW910" if self.stopped.reason is StopReason.SCRIPT_ERROR else "SW912"
            how, way = _how_it_ended(self.stopped.text) if code == "SW910" else ("was interrupted", "")
            said, place = f"the program {how} after {_operations(self.checked_ops)}", self.stopped.location
            ways = ways_on(self.stopped.text, self.script, self.command("check")) if code == "SW910" else ()
            return Finding(code, said, place, help=(way, *ways) if way else ways)
        shown = self.coverage.has_modules or self.coverage.unjudged
        if self.checked_ops == 0 and not (self.errors or self.held_back or shown):
            told = f"no operation with typed operands was run, {self.unchecked_ops} without types"
            if (where := self.runs_alone) is not None:
                return Finding("SW911", told, facts=(where,), help=(self.larger_mesh("check"),))
            return Finding(
                "SW911",
                told,
                help=(
                    f"{self.command('verify')} compares the numbers and needs no types",
                    f"{self.command('infer')} --write puts types into the source, to have them checked",
                ),
            )
        return None

    @property
    def runs_alone(self) -> str | None:
        """That the program has made a mesh of one rank, whatever the command's is; None if it has not."""
        if not self.own_mesh or not all(axis.endswith("=1") for axis in self.own_mesh.split(", ")):
            return None
        return f"every axis of its mesh {self.own_mesh} has one rank, along which nothing can differ"

    def larger_mesh(self, command: str) -> str:
        """How the program is given more ranks, with a command."""
        script = self.command(command)
        if not self.mesh:
            script = script.partition(" --mesh ")[0]
        return f"give it more ranks: options of its own go behind --, and {script} -- --help may list them"

    @property
    def ends_with_error(self) -> bool:
        """Is one of the errors the exception with which the program ended? It says so itself."""
        return self.last_error is not None

    @property
    def last_error(self) -> Finding | None:
        """The error that is the exception with which the program ended, if one of them is."""
        if self.stopped is None:
            return None
        return next((finding for finding in self.errors if ENDS_PROGRAM in finding.facts), None)

    def command(self, name: str) -> str:
        """The command that runs this program on a mesh: that of the command line, else the program's own."""
        script = self.script if self.script.startswith("-m ") else shlex.quote(self.script)
        mesh = shlex.quote((self.mesh or self.own_mesh).replace(", ", ",") or "dp=2")
        return f"shardwise {name} {script if self.script else 'SCRIPT'} --mesh {mesh}"

    @property
    def inconclusive(self) -> bool:
        """The program ran to its end, and nothing was judged that depends on its parameters.

        A gradient that nobody sums would pass. Where modules have no parameters, it is their inputs that count; of a
        program without modules that it claims something, or that most of what it does was checked. Along an axis of
        which nothing is known, any sum may be missing, so what is known along others is no verdict; nor is one that
        rests on data or gradients of which nothing is known. That ranks issue the same calls says nothing of these.
        """
        if self.coverage.has_modules:
            covered = self.coverage.has_types and self.checked_ops > 0
        else:
            covered = bool(self.trusted) or self.checked_ops >= self.unchecked_ops
        covered = covered and not self.coverage.unjudged
        return self.ending is None and not (self.errors or self.held_back or covered)

    @property
    def interrupted(self) -> bool:
        """True if a person ended the run: what was found is told, and there is no verdict."""
        return self.stopped is not None and self.stopped.reason is StopReason.INTERRUPTED

    @property
    def exit_code(self) -> ExitCode:
        if self.errors and not self.interrupted:
            return ExitCode.FINDINGS
        if self.inconclusive:
            return ExitCode.INCONCLUSIVE
        return ExitCode.CLEAN if self.ending is None else ExitCode.BROKEN

    @property
    def verdict(self) -> str:
        """One word: ``clean``, ``findings``, ``inconclusive``, or why there is no verdict."""
        if self.errors and not self.interrupted:
            return "findings"
        if self.inconclusive:
            return "inconclusive"
        return "clean" if self.ending is None else self.ending.name


def _how_it_ended(stopped: str) -> tuple[str, str]:
    """``raised ValueError: no such batch``, or what ended the program that is no exception of its own; and a help."""
    other = stopped.removeprefix(NO_EXCEPTION)
    if other == stopped:
        return f"raised {stopped}".rstrip(), ""
    how, _, way = other.partition("; ")
    return how, way


def _operations(count: int) -> str:
    return f"{count} checked operation{'' if count == 1 else 's'}"


def group(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """The findings with repetitions counted; the first of each kind stands for the others."""
    first: dict[tuple[object, ...], Finding] = {}
    counts: Counter[tuple[object, ...]] = Counter()
    modules: dict[tuple[object, ...], dict[str, None]] = {}
    for finding in findings:
        # Without a location nothing but the message tells two mistakes apart.
        key = (finding.code, finding.location or finding.message, finding.op, finding.axis)
        first.setdefault(key, finding)
        counts[key] += finding.count
        modules.setdefault(key, {}).update(dict.fromkeys(finding.modules))
    return tuple(replace(finding, count=counts[key], modules=tuple(modules[key])) for key, finding in first.items())


_Notes = Counter[tuple[str, SourceLocation | Site | None]]


def _resolved(counts: _Notes) -> tuple[Noted, ...]:
    """The notes with every site looked up."""
    resolved: Counter[tuple[str, SourceLocation | None]] = Counter()
    for (what, location), count in counts.items():
        resolved[what, location.location() if isinstance(location, Site) else location] += count
    return tuple(Noted(what, location, count) for (what, location), count in resolved.items())


@dataclass
class Collector:
    """Gathers one run. Several threads may write into one collector."""

    mesh: str = ""
    own_mesh: str = ""
    script: str = ""
    rank: int | None = None
    coverage: Coverage = NOTHING
    record: RunRecord | None = None
    ignores: tuple[IgnoreSeen, ...] = ()
    notes_calls: bool = True
    """Whether calls are told apart by what they have to do with: with one rank no type says anything."""
    told: Callable[[Finding], object] = lambda finding: None
    _findings: list[Finding] = field(default_factory=list)
    _checked: int = 0
    _unchecked: int = 0
    _no_rule: Counter[str] = field(default_factory=Counter)
    _trusted: _Notes = field(default_factory=Counter)
    _lost: _Notes = field(default_factory=Counter)
    _passed_over: _Notes = field(default_factory=Counter)
    _not_followed: dict[str, None] = field(default_factory=dict)
    _stopped: Stop | None = None
    _started_s: float = field(default_factory=time.perf_counter)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, finding: Finding) -> None:
        with self._lock:
            self._findings.append(finding)
        self.told(finding)

    @property
    def count(self) -> int:
        """How many findings have been added."""
        with self._lock:
            return len(self._findings)

    def added_since(self, count: int) -> list[Finding]:
        """The findings after the first ``count``."""
        with self._lock:
            return self._findings[count:]

    def withdraw(self, findings: Sequence[Finding]) -> None:
        """These findings, which were added, have turned out to be none."""
        with self._lock:
            self._findings = [one for one in self._findings if all(one is not other for other in findings)]

    def count_checked(self, count: int = 1) -> None:
        with self._lock:
            self._checked += count

    def count_unchecked(self, count: int = 1) -> None:
        with self._lock:
            self._unchecked += count

    def count_no_rule(self, op: str) -> None:
        """Operator ``op`` was called and has no rule."""
        with self._lock:
            self._no_rule[op] += 1

    def trust(self, what: str, location: SourceLocation | Site | None = None) -> None:
        """``what`` was believed at ``location``; a Site is resolved only when the result is asked for."""
        with self._lock:
            self._trusted[what, location] += 1

    def lose(self, what: str, location: SourceLocation | Site | None = None) -> None:
        """The type of ``what`` was lost at ``location``; a Site is resolved only when the result is asked for."""
        with self._lock:
            self._lost[what, location] += 1

    def pass_over(self, op: str, location: SourceLocation | Site | None = None) -> None:
        """Operator ``op`` was not checked at ``location``; a Site is resolved only when the result is asked for."""
        with self._lock:
            self._passed_over[op, location] += 1

    def leave_out(self, parts: Iterable[str]) -> None:
        """These parts of the library are not followed; said once, however often they are named."""
        with self._lock:
            self._not_followed.update(dict.fromkeys(parts))

    def stop(self, reason: StopReason, text: str = "", location: SourceLocation | None = None) -> None:
        """The program ended before its time. The first reason given stays."""
        with self._lock:
            if self._stopped is None:
                self._stopped = Stop(reason, text, location)

    def result(self) -> RunResult:
        """Everything so far; the collector may go on."""
        with self._lock:
            return RunResult(
                findings=group(self._findings),
                checked_ops=self._checked,
                unchecked_ops=self._unchecked + self._passed_over.total(),
                no_rule_ops=tuple(self._no_rule.most_common()),
                trusted=_resolved(self._trusted),
                lost=_resolved(self._lost),
                unchecked=_resolved(self._passed_over),
                not_followed=tuple(self._not_followed),
                stopped=self._stopped,
                duration_s=time.perf_counter() - self._started_s,
                mesh=self.mesh,
                own_mesh=self.own_mesh,
                script=self.script,
                rank=self.rank,
                coverage=self.coverage,
                record=self.record,
                ignores=self.ignores,
            )
