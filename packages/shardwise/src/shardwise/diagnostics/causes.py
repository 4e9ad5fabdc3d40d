"""Findings with one cause as one: calls that all miss the same step of the same value.

Three lines that take a pending sum as if it were complete miss one all_reduce. One repair mends them: it stands where
the value is made if that line says so and they are in the same function, else around each use. What several functions
call by one name, and what got its type at one place, is one value. Whatever takes gradients of one backward pass that
nobody has summed, as a norm and then a step, misses one sum too. Where only words tell what to do with a value, what is
told the same of one name in one function is one mistake.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from .excerpt import source_line
from .finding import Finding
from .fix import Edit, Fix, Insert, Wrap
from .source_location import Hop, Operand, SourceLocation

_BEFORE = " before "
_UNTYPED = ("SW103", "SW207")
_ANNOTATED = re.compile(r"assert_type\(([\w.\[\]]+), ")
_EXPRESSIONS = ("<lambda>", "<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>")
_OFFENCES = {"SW115": "SW112"}
"""Codes that say of another place what the other code says: a pending sum that is read is taken for a complete one."""


@dataclass(frozen=True)
class _Missed:
    """A step that a line of help takes: its text, the operand's name and where that got its type."""

    step: str
    name: str
    origin: tuple[Hop, ...]

    @property
    def kind(self) -> str:
        """The step without its operand: ``all_reduce(, "tp", src=P, dst=R)``."""
        return self.step.replace(f"({self.name}, ", "(, ", 1)


@dataclass(frozen=True)
class _Advised:
    """Words that tell what to do with an operand, which no edit does: its name and type, and all lines of help."""

    name: str
    type: str
    help: tuple[str, ...]


def by_cause(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """The findings, of which those with one cause are one that has the others as ``alike``; in order of the first."""
    causes = [(finding, _causes(finding)) for finding in findings]
    counts = Counter(key for _, keys in causes for key in keys)
    groups: dict[object, list[Finding]] = {}
    for number, (finding, keys) in enumerate(causes):
        common = max(keys, key=lambda key: counts[key], default=None)
        alone = common is None or counts[common] == 1
        groups.setdefault(number if alone else common, []).append(finding)
    return tuple(_grouped(group, key) for key, group in groups.items())


def _grouped(group: Sequence[Finding], key: object) -> Finding:
    if len(group) == 1 or not isinstance(key, tuple):
        return group[0]
    if isinstance(key[-1], SourceLocation):
        return _gradients_together(group)
    if isinstance(key[-1], _Advised):
        return _told(group, "the same at", group[0].help, ())
    return _untyped_together(group) if isinstance(key[-1], Operand) else _together(group, key[-1])


def _causes(finding: Finding) -> list[tuple[object, ...]]:
    """What the finding may have in common with others that have the same cause, one for each of its repairs."""
    if finding.location is None or finding.alike:
        return []
    if finding.unsummed is not None:
        return [(finding.axis, finding.severity, finding.ranks, finding.unsummed.arrived)]
    untyped = _untyped(finding)
    if untyped is not None:
        return [(finding.axis, finding.severity, finding.ranks, untyped)]
    where = (_OFFENCES.get(finding.code, finding.code), finding.axis, finding.severity)
    if not finding.help:
        return [(*where, finding.ranks, *_function(finding), finding.message)]
    advised = _advised(finding)
    if advised is not None:
        return [(*where, finding.ranks, *_function(finding), advised)]
    missed = [_missed(finding, line) for line in finding.help]
    return [(*where, finding.ranks, one) for one in missed if one is not None and one.origin]


def _untyped(finding: Finding) -> Operand | None:
    """The operand of a finding that is about a type that says nothing of an axis: one annotation mends all its uses."""
    found = next(filter(None, map(_ANNOTATED.match, finding.help)), None) if finding.code in _UNTYPED else None
    known = (one for one in finding.operands if found is not None and one.name == found[1] and one.origin)
    return next((Operand(one.name, one.type, origin=one.origin) for one in known), None)


def _advised(finding: Finding) -> _Advised | None:
    """What a finding without an edit and without a step says to do with an operand, the first that it names."""
    if finding.fixes or any(_missed(finding, line) is not None for line in finding.help):
        return None
    for one in finding.operands:
        named = re.compile(rf"(?<![\w.]){re.escape(one.name)}(?![\w.])")
        if one.name and any(map(named.search, finding.help)):
            return _Advised(one.name, one.type, finding.help)
    return None


def _missed(finding: Finding, line: str) -> _Missed | None:
    """What a line of help takes; None if it is no step of one operand."""
    step, before, _ = line.partition(_BEFORE)
    operand: Operand | None = next((one for one in finding.operands if f"({one.name}, " in step), None)
    if not before or operand is None or ") and " in step:
        return None
    return _Missed(step, operand.name, operand.origin)


def _together(group: Sequence[Finding], common: object) -> Finding:
    """One finding for all: repairs of the common value first, then those that are alike at every place."""
    first, *others = group
    shared: dict[str, tuple[Edit, ...]] = {}
    alike: dict[str, tuple[Edit, ...]] = {}
    chosen = any(fix.choice for finding in group for fix in finding.fixes)
    for line in first.help:
        missed = _missed(first, line)
        if missed is None:
            continue
        lines = [_line_alike(other, missed) for other in others]
        if None in lines:
            continue
        fixes = [_fix(finding, text) for finding, text in zip(group, [line, *lines], strict=True)]
        same = isinstance(common, _Missed) and (missed.name, missed.origin) == (common.name, common.origin)
        here = same and len({_function(finding) for finding in group}) == 1 and not _is_expression(first)
        edits = _edits(fixes, missed, first, here)
        if same and len(edits) > 1 and any(isinstance(edit, Insert) for edit in edits):
            edits = ()  # a step that writes the value under its name is taken once, and where is for a person to say
        (shared if same else alike)[_help(line, missed, same, here)] = edits
    help = {**shared, **alike}
    made = tuple(Fix(line, edits, chosen) for line, edits in help.items() if edits)
    return _told(group, "the same at", tuple(help), made)


def _untyped_together(group: Sequence[Finding]) -> Finding:
    """One finding for every use of what has no type for an axis: what the first of them needs is said of it once."""
    return _told(group, "the same at", group[0].help, group[0].fixes)


def _told(group: Sequence[Finding], said: str, help: tuple[str, ...], fixes: tuple[Fix, ...]) -> Finding:
    """The first finding of a group, with the others as its further places."""
    first, *others = group
    return replace(
        first,
        message=f"{first.message}; {said} {len(others)} more place{'' if len(others) == 1 else 's'}",
        help=help,
        fixes=fixes,
        alike=tuple(others),
        facts=tuple(dict.fromkeys(fact for finding in group for fact in finding.facts)),
        modules=tuple(dict.fromkeys(module for finding in group for module in finding.modules)),
    )


def _gradients_together(group: Sequence[Finding]) -> Finding:
    """One finding for all that takes unsummed gradients: each of them is summed once, where it is first taken."""
    first = group[0]
    taken: dict[str, Finding] = {}
    for finding in group:
        if finding.unsummed is not None and finding.fixes:
            taken.setdefault(finding.unsummed.gradient, finding)
    if len(taken) > 1:
        taken.pop("", None)  # the rest of what the step takes is told when these are summed
    named = list(taken.values())
    also = f", and alike {', '.join(list(taken)[1:])}" if len(named) > 1 else ""
    ways = [list(one) for one in zip(*(finding.fixes for finding in named), strict=False)]
    fixes = tuple(
        Fix(f"{way[0].help}{also}", tuple(edit for fix in way for edit in fix.edits), any(fix.choice for fix in way))
        for way in ways
    )
    help = tuple(dict.fromkeys((*(fix.help for fix in fixes), *(first.help if not also else ()))))
    return _told(group, "the same sum is missing at", help or first.help, fixes)


def _line_alike(finding: Finding, missed: _Missed) -> str | None:
    """The line of help that takes the same step, of the same operand or of the one in its place."""
    for line in finding.help:
        own = _missed(finding, line)
        if own is not None and own.kind == missed.kind:
            return line
    return None


def _fix(finding: Finding, line: str | None) -> Fix | None:
    return next((one for one in finding.fixes if one.help == line), None)


def _function(finding: Finding) -> tuple[str, str]:
    """The function that the call is made in, with its file."""
    return ("", "") if finding.location is None else (finding.location.file, finding.location.function)


def _is_expression(finding: Finding) -> bool:
    """Is the call made in a lambda or a comprehension, where nothing can be assigned?"""
    return _function(finding)[1].rpartition(".")[2] in _EXPRESSIONS


def _help(line: str, missed: _Missed, same: bool, here: bool) -> str:
    """``h = all_reduce(h, ...) once, before them (...)``; of what has no name of its own, around each use.

    ``here``  all uses are in one function.
    """
    step, _, rest = line.partition(_BEFORE)
    of, doubt, why = rest.partition(", if ")
    effect = (f" {of[of.index('(') :]}" if "(" in of else "") + doubt + why
    if not same:
        return f"{step}{_BEFORE}{of.partition(' (')[0]}, and alike at the other places{effect}"
    if here and missed.name.isidentifier():
        return f"{missed.name} = {step} once, before them{effect}"
    return f"{step}{_BEFORE}each of them{effect}"


def _edits(fixes: Sequence[Fix | None], missed: _Missed, first: Finding, here: bool) -> tuple[Edit, ...]:
    """Around what makes the value where a line of the same function assigns it, else around every use."""
    if any(fix is None for fix in fixes):
        return ()
    edits = tuple(dict.fromkeys(edit for fix in fixes if fix is not None for edit in fix.edits))
    made = missed.origin[0].location if missed.origin else None
    if not here or made is None or made.column is None or not isinstance(edits[0], Wrap):
        return edits
    assigned = re.match(rf"\s*{re.escape(missed.name)}\s*=(?!=)", source_line(made) or "")
    is_here = (made.file, made.function) == _function(first)
    return (replace(edits[0], location=made),) if assigned and is_here else edits
