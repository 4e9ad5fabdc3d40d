"""The program with the types of what each line binds as trailing comments, and its findings in place.

    36 |     def forward(self, tokens_BT):                # tokens_BT: i64[4@dp, 32] {tp: R}
    37 |         return vocabulary_lookup(tokens_BT)      # return: f32[4, 32, 64] {dp: V, tp: I}, 20 times

Source comes from ``linecache``; types from the ``RunRecord`` of the run. Long stretches without either are left out.
"""

from __future__ import annotations

import itertools
import linecache
from collections.abc import Iterable, Iterator, Sequence

from shardwise.diagnostics.codes import Severity
from shardwise.diagnostics.excerpt import Mark, excerpt
from shardwise.diagnostics.finding import WIDTH, Finding, absolute_root, shown_path
from shardwise.diagnostics.printing.paint import Line, paint
from shardwise.diagnostics.printing.printable import cells, clean, safe_str, window
from shardwise.diagnostics.result import RunResult
from shardwise.diagnostics.run_record import NamedTypes, RunRecord

QUIET_STRETCH = 12
"""Lines without a type or a finding that are shown whole; of more, those next to others that have some."""
CONTEXT = 3
_GAP = 2
_NARROWEST = 24
_DOTS = "..."


def annotated(
    result: RunResult, *, color: bool = False, width: int = WIDTH, root: str | None = None, whole: bool = False
) -> str:
    """The files of the program, the script first, without a final newline. ``whole``: no stretch is left out.

    ``width`` is kept: a comment that does not fit beside its line stands under it.
    """
    return paint(annotated_lines(result, width=width, root=root, whole=whole), color=color)


def annotated_lines(
    result: RunResult, *, width: int = WIDTH, root: str | None = None, whole: bool = False
) -> list[Line]:
    """The same in pieces: the types are those of the style ``secondary``, each the last of its line."""
    root = absolute_root(root)
    record = result.record or RunRecord()
    lines: list[Line] = []
    for file in files_of(result):
        found = [one for one in places_of(result) if one.location is not None and one.location.file == file]
        lines += [[]] if lines else []
        lines += _file(file, record.by_line(file), found, width, root, whole)
    return lines


def files_of(result: RunResult) -> tuple[str, ...]:
    """The files that have something to show: the script first, then as the program came to them."""
    record = result.record or RunRecord()
    found = [one.location.file for one in places_of(result) if one.location is not None]
    files = list(dict.fromkeys([*record.files, *found]))
    script = result.script.split(" ")[0]
    return tuple(sorted(files, key=lambda file: not (script and file.endswith(script.removeprefix("./")))))


def places_of(result: RunResult) -> list[Finding]:
    """A finding for each place of the findings."""
    return [place for one in result.findings for place in one.places]


def comment(value: NamedTypes) -> str:
    """What is said of one value: its name, its types as one, and how often."""
    times = f", {value.count} times" if value.count > 1 else ""
    return f"{safe_str(value.name)}: {safe_str(value.text)}{times}"


def _file(
    file: str,
    types: dict[int, list[NamedTypes]],
    findings: Sequence[Finding],
    width: int,
    root: str,
    whole: bool,
) -> list[Line]:
    source = [text.rstrip("\r\n") for text in linecache.getlines(file)]
    lines: list[Line] = [[("strong", shown_path(file, root))]]
    if not source:
        return [*lines, [("quiet", "  its source cannot be read")]]
    gutter = len(str(len(source)))
    marked = {one.location.line for one in findings if one.location is not None}
    shown = set(range(1, len(source) + 1)) if whole else shown_lines(len(source), {*types, *marked})
    column = _column(source, types, gutter, width)
    previous = 0
    for number in sorted(shown):
        if number > previous + 1:
            lines.append([("gutter", _DOTS)])
        here = [one for one in findings if one.location is not None and one.location.line == number]
        lines += _annotated_line(number, clean(source[number - 1]), types.get(number, ()), gutter, column, width)
        lines += _findings(here, gutter, width)
        previous = number
    if previous < len(source):
        lines.append([("gutter", _DOTS)])
    return lines


def shown_lines(count: int, told: Iterable[int]) -> set[int]:
    """The lines that are shown: those that have something to tell, those around them, and short stretches between."""
    edges = [0, *sorted(told), count + 1]
    shown: set[int] = set(edges[1:-1])
    for before, after in itertools.pairwise(edges):
        if after - before - 1 <= QUIET_STRETCH:
            shown |= set(range(before + 1, after))
        else:
            shown |= set(range(before + 1, before + 1 + CONTEXT)) if before else set()
            shown |= set(range(after - CONTEXT, after)) if after <= count else set()
    return shown


def _column(source: Sequence[str], types: Iterable[int], gutter: int, width: int) -> int:
    """Where comments begin: after the longest line that has one, if that leaves them half of the room."""
    room = width - gutter - 3
    longest = max((cells(clean(source[line - 1])) for line in types if line <= len(source)), default=0)
    return min(longest + _GAP, max(room // 2, _NARROWEST))


def _annotated_line(
    number: int, text: str, values: Sequence[NamedTypes], gutter: int, column: int, width: int
) -> Iterator[Line]:
    room = max(width - gutter - 3, _NARROWEST)
    taken = cells(text)
    shown = text if taken <= room else window(text, 0, room - len(_DOTS)) + _DOTS
    head: Line = [("gutter", f"{number:>{gutter}} | "), ("", shown)]
    comments = _laid_out([comment(value) for value in values], room, column)
    if (
        comments
        and taken + _GAP <= max(column, taken + _GAP)
        and max(column, taken + _GAP) + cells(comments[0]) <= room
    ):
        start = max(column, taken + _GAP)
        yield [*head, ("", " " * (start - taken)), ("secondary", comments[0])]
        comments = comments[1:]
    else:
        yield head
    for said in comments:
        start = max(0, min(column, room - cells(said)))
        yield [("gutter", f"{'':>{gutter}} | "), ("", " " * start), ("secondary", said)]


def _laid_out(texts: Sequence[str], room: int, column: int) -> list[str]:
    """The comments in as few lines as they fit in."""
    rows: list[str] = []
    for text in texts:
        if rows and column + cells(rows[-1]) + 2 + cells(text) <= room:
            rows[-1] += f"; {text}"
        else:
            rows.append(f"# {text}")
    return [row if cells(row) <= room else window(row, 0, room - len(_DOTS)) + _DOTS for row in rows]


def _findings(findings: Sequence[Finding], gutter: int, width: int) -> Iterator[Line]:
    for finding in findings:
        assert finding.location is not None, "only findings of a line are asked for"
        times = f" ({finding.count} times)" if finding.count > 1 else ""
        label = f"{finding.code} {safe_str(finding.message)}{times}"
        style = "error" if finding.severity is Severity.ERROR else "warning"
        for row in excerpt([Mark(finding.location, label, primary=True)], gutter=gutter, width=width)[1:]:
            yield [(style if kind == "primary" else kind, text) for kind, text in row]
