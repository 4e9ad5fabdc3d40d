"""How are the bugs shown? A summary in the README, with the typical ones, and all of them on a page of the docs."""

from collections import Counter
from difflib import unified_diff
from pathlib import Path

from catalogue import SECTIONS, changed
from evidence import TOLERANCE, Row
from programs import PROGRAMS

BEGIN, END = "<!-- bugs:begin -->", "<!-- bugs:end -->"
NOTE = "<!-- written by `python examples/bugs/run.py --write`; a test compares it with a fresh run -->"
HEAD = [
    "| the bug | first loss off by | worst gradient off by | caught by | what it says |",
    "| --- | ---: | ---: | --- | --- |",
]
CAUGHT_BY = {
    "types": "`shardwise check --strict` names the line of {}",
    "types (global)": "with `--global` of {} more",
    "uniformity": "with `--ranks all` of {} in which ranks diverge",
    "verify": "the other {} are seen in the numbers, by `shardwise verify`",
}


def summary(rows: list[Row]) -> str:
    """How many there are, and what finds them."""
    bugs = [row.bug for row in rows if row.bug]
    counts = Counter(bug.caught_by for bug in bugs)
    *found, last = [text.format(counts[by]) for by, text in CAUGHT_BY.items()]
    return (
        f"{len(bugs)} silent bugs, each one change to a program that is right; with it the program runs, trains and "
        f"is wrong on four processes, or hangs. {', '.join(found)}; {last}."
    )


def short_table(rows: list[Row]) -> str:
    """The summary, and one line for each typical bug."""
    return "\n".join([summary(rows), "", *_table([row for row in rows if row.bug and row.bug.typical])])


def page(rows: list[Row]) -> str:
    """The page of the docs: every bug with its story and its change."""
    programs = ", ".join(f"`{PROGRAMS[name].shown}`" for name in dict.fromkeys(row.case.copy_of for row in rows))
    lines = [
        "# The bugs it exists for",
        "",
        NOTE,
        "",
        f"Each program is one of {programs} with one change. It runs without an error on four processes, a mesh of "
        "2 x 2, and computes something else than on one. *First loss* compares the loss of the first step; *worst "
        "gradient* is that of the parameter whose gradient is off most as it enters the optimizer in the second step, "
        "relative to its norm. The unchanged programs agree to twelve digits, and `shardwise check` finds nothing "
        "wrong with them, nor does it with `--global`, nor with `--partials explicit` as well, nor with `--ranks all`. "
        "Bugs in which ranks diverge come to no numbers: they hang, and are proven in one process that sees it.",
        "",
        summary(rows),
        "",
        *_table([row for row in rows if row.bug]),
    ]
    for section in SECTIONS:
        lines += ["", f"## {section.replace('_', ' ').capitalize()}"]
        for row in rows:
            if row.bug and row.bug.section == section:
                lines += ["", *_entry(row)]
    return "\n".join(lines) + "\n"


def between_markers(text: str, table: str) -> str:
    """``text`` with ``table`` between the markers, which must be there."""
    before, _, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not end:
        raise ValueError(f"the README lacks the markers {BEGIN} and {END}")
    return f"{before}{BEGIN}\n{table}\n{END}{after}"


def _table(rows: list[Row]) -> list[str]:
    return HEAD + [
        f"| {row.bug.title} | {_loss(row)} | {_gradient(row)} | {row.bug.caught_by} | {_said(row, width=48)} |"
        for row in rows
    ]


def _entry(row: Row) -> list[str]:
    bug = row.bug
    options = f" Shows with `{' '.join(bug.args)}`." if bug.args else ""
    if bug.expect:
        verdict = f"**`shardwise check` says** {_said(row)}."
    elif bug.expect_global:
        verdict = f"**`shardwise check --global` says** {_said(row)}. Not seen by local types: {bug.unseen}."
    elif bug.expect_ranks:
        verdict = f"**`shardwise check --ranks all` says** {_said(row)}. Not seen by types: {bug.unseen}."
    else:
        verdict = f"**`shardwise verify` says** {_said(row)}. Not seen by types: {bug.unseen}."
    return [
        f"### {bug.title[0].upper()}{bug.title[1:]}",
        "",
        f"{bug.story}{options}",
        "",
        "```diff",
        *_diff(row),
        "```",
        "",
        f"{_numbers(row)}. {verdict}",
    ]


def _numbers(row: Row) -> str:
    if row.hang:
        return f"It hangs: {row.hang}"
    where = "" if row.case.random else f" (`{row.difference.parameter}`)"
    loss = f"First loss off by {_loss(row)}, worst" if row.difference.losses else "Worst"
    return f"{loss} gradient by {_gradient(row)}{where}"


def _diff(row: Row) -> list[str]:
    bug = row.bug
    source = Path(PROGRAMS[bug.program].folder, bug.file).read_text()
    diff = unified_diff(source.splitlines(), changed(bug, source).splitlines(), n=1, lineterm="")
    return [f"# {bug.file}"] + [line for line in diff if not line.startswith(("---", "+++", "@@"))]


def _said(row: Row, width: int = 120) -> str:
    mode = {"types": "local", "types (global)": "global"}.get(row.bug.caught_by, "ranks")
    expected = row.bug.expected(mode)
    if expected is None:
        return row.wrong_numbers
    line = next((error.text for error in row.verdicts[mode].errors if error.code == expected.code), expected.line)
    line = line if len(line) <= width else f"{line[: width - 1]}…"
    return f"`{expected.code}` at `{line}` in {expected.file}"


def _loss(row: Row) -> str:
    if row.hang:
        return "hangs"
    return "-" if row.case.random or not row.difference.losses else _percent(row.difference.losses[0])


def _gradient(row: Row) -> str:
    if row.hang:
        return "hangs"
    if row.case.random:
        return f"{_percent(row.difference.replicas)} between ranks"
    return _percent(row.difference.gradient)


def _percent(ratio: float) -> str:
    if ratio < TOLERANCE:
        return "0"
    if ratio >= 10:
        return f"{ratio:.0f} times"
    return "< 1 %" if ratio < 0.01 else f"{ratio:.0%}".replace("%", " %")
