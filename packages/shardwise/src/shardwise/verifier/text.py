"""The verdict of ``verify``, and its text: what the types say, and what the numbers say, side by side.

The text shows the findings, the first tensor that disagrees, and both verdicts in the last two lines.
"""

from __future__ import annotations

import ast
import linecache
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from shardwise.diagnostics.excerpt import Mark, excerpt, source_line
from shardwise.diagnostics.finding import WIDTH, location_text
from shardwise.diagnostics.finding import render as render_finding
from shardwise.diagnostics.printing.limits import DEFAULT, Limits, counted, rest
from shardwise.diagnostics.printing.paint import Line, paint
from shardwise.diagnostics.printing.printable import safe_str
from shardwise.diagnostics.result import ExitCode, RunResult
from shardwise.diagnostics.source_location import SourceLocation
from shardwise.interop.autograd.parameter_names import listed
from shardwise.interop.running.recording import Key

from .distance.difference import Difference
from .distance.numbers import Against, FirstInBackward, NotCompared, Numbers, ValueDisagreement
from .records.failure import Failure

LONGEST_NAME = 40
FURTHER = 10
"""Disagreements after the first that are listed, and reasons why records are not compared."""


@dataclass(frozen=True)
class Verdict:
    """A verified program.

    ``types``    what the checker found while the ranks of the mesh ran, all ranks together; of the run on one rank
                 there are no types to check.
    ``numbers``  how the tensors of the mesh compare with those of one rank.
    ``failure``  why there are no numbers; None if both runs came to their end.
    """

    program: str
    mesh: str
    types: RunResult = field(default_factory=RunResult)
    numbers: Numbers = field(default_factory=Numbers)
    failure: Failure | None = None
    duration_s: float = 0.0

    @property
    def exit_code(self) -> ExitCode:
        """Findings of either kind; no verdict if a run failed, or shows nothing that could be compared; inconclusive
        if losses or gradients, or what else there is, were not compared with the run on one rank.
        """
        if self.failure is not None:
            return ExitCode.BROKEN
        if self.types.errors or self.numbers.disagreements:
            return ExitCode.FINDINGS
        if self.numbers.open_questions:
            return ExitCode.INCONCLUSIVE
        if not self.numbers.compared:
            return ExitCode.INCONCLUSIVE if self.numbers.not_compared else ExitCode.BROKEN
        return ExitCode.CLEAN

    @property
    def ok(self) -> bool:
        """True if both verdicts are clean."""
        return self.exit_code is ExitCode.CLEAN

    def __str__(self) -> str:
        return render_verdict(self)


def render_verdict(
    verdict: Verdict, *, color: bool = False, width: int = WIDTH, root: str | None = None, limits: Limits = DEFAULT
) -> str:
    """The verdict as text without a final newline; paths under ``root`` (default: here) are shown relative to it."""
    root = os.path.abspath(root if root is not None else os.getcwd())
    blocks = [
        render_finding(finding, color=color, width=width, root=root, limits=limits)
        for finding in verdict.types.findings[: limits.findings]
    ]
    more = rest(len(verdict.types.findings), limits.findings, "finding", "findings")
    blocks += [more] if more else []
    said = [paint(block, color=color) for block in _numbers(verdict, width, root, limits)]
    if verdict.numbers.cause is not None:
        cause = render_finding(verdict.numbers.cause, color=color, width=width, root=root, limits=limits)
        if any(operand.location is not None for operand in verdict.numbers.cause.operands):
            said.insert(0, f"the cause, as global types see it:\n{cause}")
        else:  # what a library has called by itself may be beside the point
            said.insert(1, f"what global types see, which may be the cause:\n{cause}")
    blocks += said
    blocks.append(paint(summary_lines(verdict), color=color))
    return "\n\n".join(blocks)


def _numbers(verdict: Verdict, width: int, root: str, limits: Limits | None) -> Iterator[list[Line]]:
    """A block for each thing to say; without ``limits`` those that are lists are left out."""
    numbers = verdict.numbers
    if verdict.failure is not None:
        yield [*_failed(verdict.failure, width, root), *_how_to_compare_ranks(verdict)]
        return
    first, others = numbers.lead, numbers.others
    if first is not None:
        yield _first(first, numbers, verdict.mesh, width, root)
    if numbers.module is not None and numbers.module is not first:
        yield _module(numbers.module, verdict.mesh)
    if numbers.backward is not None and numbers.backward.wrong is not first:
        yield _backward(numbers.backward, width, root)
    if others and limits is not None:
        yield _further(others, root, limits)
    for note in numbers.notes:
        yield [[("strong", "note: "), ("", safe_str(note))]]
    if numbers.parting is not None:
        where = _where(numbers.parting.key, root)
        yield [
            [("warning", f"the two runs part{where}: "), ("", numbers.parting.reason)],
            [("", "  from there on only what should be equal on several ranks is compared")],
            *([[("strong", "  what to do: "), ("", numbers.parting.remedy)]] if numbers.parting.remedy else []),
        ]
    if numbers.not_compared and limits is not None:
        yield _not_compared(numbers.not_compared, root, limits)


def _how_to_compare_ranks(verdict: Verdict) -> list[Line]:
    if verdict.failure is None or not verdict.failure.apart:
        return []
    command = f"shardwise check {verdict.program} --mesh {verdict.mesh.replace(', ', ',')} --ranks all"
    return [[("strong", "  what to do: "), ("", f"{safe_str(command)} tells which calls of the ranks do not fit")]]


def _failed(failure: Failure, width: int, root: str) -> list[Line]:
    lines: list[Line] = [
        [("error", f"the run {failure.where} did not come to its end"), ("strong", f": {safe_str(failure.text)}")]
    ]
    if failure.location is not None:
        lines += _shown_source(failure.location, width, root)
    return [*lines, *([("", f"  {safe_str(line)}")] for line in failure.details.splitlines())]


def _first(wrong: ValueDisagreement, numbers: Numbers, mesh: str, width: int, root: str) -> list[Line]:
    """What the mistake is nearest to, as far as the numbers tell. The first line stands alone in the log of a CI."""
    told = f"{_named(wrong.key)} {safe_str(wrong.said)}"
    if numbers.why:
        told = f"{safe_str(numbers.why)}; {told}"
    elif wrong.hint and _is_factor(wrong):
        told += f": {safe_str(wrong.hint.partition(':')[0])}"
    lines: list[Line] = [[("error", "wrong numbers"), ("strong", f": {told}")]]
    backward = numbers.backward if numbers.backward is not None and numbers.backward.wrong is wrong else None
    location = numbers.why_at or (wrong.key.location or wrong.use if backward is None else backward.use)
    margin = " "
    if location is not None:
        lines += _shown_source(location, width, root)
        margin = " " * len(str(location.line))
    facts = [*([("used", _behind(backward))] if backward is not None else []), *_facts(wrong, mesh)]
    return [*lines, *([("gutter", f"{margin} = "), ("strong", f"{kind}: "), ("", text)] for kind, text in facts)]


def _module(wrong: ValueDisagreement, mesh: str) -> list[Line]:
    lines: list[Line] = [[("strong", "first module: "), ("", f"{_named(wrong.key)} {safe_str(wrong.said)}")]]
    lines += [[("gutter", "  = "), ("strong", f"{kind}: "), ("", text)] for kind, text in _facts(wrong, mesh)]
    return lines


def _backward(found: FirstInBackward, width: int, root: str) -> list[Line]:
    lines: list[Line] = [[("strong", "first in backward: "), ("", f"{_named(found.wrong.key)}, of what is used here")]]
    if found.use is not None:
        lines += _shown_source(found.use, width, root)
    said = "no gradient is known to be right that backward computes before it"
    return [*lines, [("gutter", "  = "), ("strong", "gradients: "), ("", said)]]


def _behind(found: FirstInBackward) -> str:
    right = listed([safe_str(name) for name in found.right])
    return f"here; backward goes wrong behind it, as the gradients of what is used later are right: {right}"


def _shown_source(location: SourceLocation, width: int, root: str) -> list[Line]:
    gutter = len(str(location.line))
    lines: list[Line] = [[("gutter", f"{' ' * gutter}--> "), ("", location_text(location, root))]]
    if source_line(location) is not None:
        lines.append([("gutter", f"{' ' * gutter} |")])
        lines += excerpt([Mark(location, primary=True)], gutter=gutter, width=width)
    return lines


def _facts(wrong: ValueDisagreement, mesh: str) -> Iterator[tuple[str, str]]:
    yield "claim", safe_str(wrong.claim)
    found = wrong.difference
    if found is not None:
        yield "first", _first_element(wrong, found, mesh)
    if found is not None and found.total > 1:
        size = f"by up to {found.largest:.3g} where the largest is {found.scale:.3g}"
        yield "all", f"{found.count} of {counted(found.total, 'element')} differ, {size}"
    if wrong.hint:
        yield "factor" if _is_factor(wrong) else "help", wrong.hint


def _is_factor(wrong: ValueDisagreement) -> bool:
    return wrong.difference is not None and wrong.difference.factor is not None and wrong.against is Against.ALONE


def _first_element(wrong: ValueDisagreement, found: Difference, mesh: str) -> str:
    where = f"at {list(wrong.index)}" if wrong.index else "as a whole"
    actual, expected = _told_apart(found.actual, found.expected)
    if wrong.against is Against.RANKS:
        base, rank = wrong.ranks
        return f"{where} rank {rank} has {actual}, rank {base} has {expected}"
    if len(wrong.ranks) > 1:
        return f"{where} the sum over ranks {', '.join(map(str, wrong.ranks))} is {actual}, one rank has {expected}"
    there = f" at {list(wrong.whole_index)}" if wrong.whole_index != wrong.index else ""
    return f"{where} rank {wrong.rank} ({_coordinates(wrong.rank, mesh)}) has {actual}, one rank has {expected}{there}"


def _coordinates(rank: int, mesh: str) -> str:
    """``dp=0, tp=1`` for rank 1 of a mesh that is shown as ``dp=2, tp=2``."""
    coordinates = []
    for axis in reversed(mesh.split(", ")):
        name, _, size = axis.partition("=")
        rank, coordinate = divmod(rank, int(size))
        coordinates.append(f"{name}={coordinate}")
    return ", ".join(reversed(coordinates))


def _told_apart(one: complex, other: complex) -> tuple[str, str]:
    """Both with so many digits as tell them apart: the last ones are another machine's choice."""
    shown = [(_number(one, digits), _number(other, digits)) for digits in range(5, 18)]
    return next((pair for pair in shown if pair[0] != pair[1]), shown[-1])


def _number(value: complex, digits: int) -> str:
    return f"{value:.{digits}g}" if isinstance(value, float) else str(value)


def _further(others: Sequence[ValueDisagreement], root: str, limits: Limits) -> list[Line]:
    limit = None if limits.findings is None else FURTHER
    lines: list[Line] = [[("strong", "also, later in program order:")]]
    for wrong in others[:limit]:
        lines.append([("", f"  {_named(wrong.key)}{_where(wrong.key, root)} {safe_str(wrong.said)}{_short(wrong)}")])
    more = rest(len(others), limit, "tensor", "tensors")
    return [*lines, [("quiet", f"  {more}")]] if more else lines


def _short(wrong: ValueDisagreement) -> str:
    found = wrong.difference
    if found is None:
        return ""
    return f" (by up to {found.largest:.3g} of {found.scale:.3g})"


def _not_compared(left_out: tuple[NotCompared, ...], root: str, limits: Limits) -> list[Line]:
    reasons = Counter((safe_str(one.reason), one.key.source) for one in left_out)
    lines: list[Line] = [[("strong", "not compared:")]]
    limit = limits.trusted
    for (reason, key), count in list(reasons.items())[:limit]:
        times = f", {count} times" if count > 1 else ""
        lines.append([("", f"  {key}{_where(key, root)}{times}: {reason}")])
    more = rest(len(reasons), limit, "reason", "reasons")
    return [*lines, [("quiet", f"  {more}")]] if more else lines


def _named(key: Key) -> str:
    if (
        key.kind == "declared"
        and key.location is not None
        and key.name.startswith(("assert_", "mutate_", "reinterpret_"))
    ):
        number = "" if key.nth == 1 else f" (number {key.nth})"
        return f"{safe_str(_first_argument(key.location))}{number}, as {key.name} has it,"
    if key.kind == "left" and key.location is not None:
        return f"gradient of {safe_str(_first_argument(key.location))} at the end"
    if key.kind == "gradient":
        return f"{safe_str(key)} in step {key.nth}"
    if key.kind == "updated":
        return f"{safe_str(key)} {key.nth}"
    return safe_str(key) if key.nth == 1 else f"{safe_str(key)} (number {key.nth})"


def _first_argument(location: SourceLocation) -> str:
    """The source of what an annotation annotates."""
    lines = linecache.getlines(location.file)[location.line - 1 : location.end_line]
    if not lines or location.column is None or location.end_column is None:
        return "the tensor"
    data = [line.encode() for line in lines]
    data[-1] = data[-1][: location.end_column]
    data[0] = data[0][location.column :]
    try:
        call = ast.parse(b"".join(data).strip(), mode="eval").body
    except SyntaxError:
        return "the tensor"
    if not isinstance(call, ast.Call) or not call.args:
        return "the tensor"
    said = ast.unparse(call.args[0])
    return said if len(said) <= LONGEST_NAME else "the tensor"


def _where(key: Key, root: str) -> str:
    return "" if key.location is None else f" ({location_text(key.location, root)})"


def numbers_lines(verdict: Verdict, width: int = WIDTH, root: str | None = None) -> tuple[Line, ...]:
    """What the text says of the numbers alone, for a page that has its lists: what disagrees first, and what parts."""
    root = os.path.abspath(root if root is not None else os.getcwd())
    lines: list[Line] = []
    for block in _numbers(verdict, width, root, None):
        lines += [[], *block] if lines else block
    return tuple(lines)


def summary_lines(verdict: Verdict) -> list[Line]:
    """The last two lines: the verdict on types, and that on numbers."""
    if verdict.failure is not None:
        return [[("error", "no verdict"), ("", f"; {verdict.program} on mesh {verdict.mesh}")]]
    numbers = verdict.numbers
    said = [counted(numbers.equal, "tensor") + " equal to the run on one rank"]
    if numbers.replicas:
        said.append(f"{numbers.replicas} equal between ranks")
    if numbers.not_compared:
        said.append(f"{len(numbers.not_compared)} not compared")
    if numbers.disagreements:
        style, head = "error", f"{counted(len(numbers.disagreements), 'disagreement')}"
    elif numbers.open_questions:
        style, head = "warning", "inconclusive"
        said.append("; ".join(numbers.open_questions))
    elif numbers.compared:
        style, head = "good", "clean"
    elif numbers.not_compared:
        style, head = "warning", "inconclusive"
    else:
        style, head = "error", "nothing was compared"
        said = ["say what tensors are with assert_type, or have them compared with checkpoint_value(name, x)"]
    return [
        _types_line(verdict.types),
        [("strong", "numbers: "), (style, head), ("", f"; {', '.join(said)}")],
    ]


def _types_line(types: RunResult) -> Line:
    checked = f"{counted(types.checked_ops, 'operation')} checked"
    if types.errors:
        return [("strong", "types:   "), ("error", counted(len(types.errors), "error")), ("", f"; {checked}")]
    if types.exit_code is ExitCode.BROKEN:
        none = "the program writes no types, and shardwise check takes those of wrappers"
        why = none if types.stopped is None or types.ending is None else types.ending.message
        return [("strong", "types:   "), ("warning", "nothing was checked"), ("", f"; {why}")]
    return [("strong", "types:   "), ("good", "clean"), ("", f"; {checked}")]
