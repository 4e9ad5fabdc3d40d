"""How are the bugs shown? The short table of the README and the long page of the docs."""

from difflib import unified_diff
from pathlib import Path

from catalogue import PROGRAM, SECTIONS, Bug
from evidence import TOLERANCE, Row

BEGIN, END = "<!-- bugs:begin -->", "<!-- bugs:end -->"
NOTE = "<!-- written by `python examples/bugs/run.py --write`; a test compares it with a fresh run -->"


def short_table(rows: list[Row]) -> str:
    """One line per bug."""
    bugs = [row for row in rows if row.bug]
    local = sum(row.bug.expect is not None for row in bugs)
    seen = sum(row.bug.expected("global") is not None for row in bugs)
    across = sum(row.bug.caught_by == "uniformity" for row in bugs)
    lines = [
        f"{len(bugs)} silent bugs, each one change to `examples/gpt` that runs, trains and is wrong on four processes. "
        f"`shardwise check` names the guilty line of {local}, with `--global` of {seen}, and with `--ranks all` of "
        f"{across} more, in which ranks diverge; "
        f"the other {len(bugs) - seen - across} are seen in the numbers, by `shardwise verify`.",
        "",
        "| the bug | first loss off by | worst gradient off by | caught by | what it says |",
        "| --- | ---: | ---: | --- | --- |",
    ]
    for row in bugs:
        lines.append(
            f"| {row.bug.title} | {_loss(row)} | {_gradient(row)} | {row.bug.caught_by} | {_said(row, width=48)} |"
        )
    return "\n".join(lines)


def page(rows: list[Row]) -> str:
    """The page of the docs: every bug with its story and its change."""
    lines = [
        "# The bugs it exists for",
        "",
        NOTE,
        "",
        "Each program is `examples/gpt` with one change. It runs without an error on four processes (dp=2, tp=2), "
        "and computes something else than on one. *First loss* compares the loss of the first step; *worst gradient* "
        "is that of the parameter whose gradient is off most in the second step, relative to its norm. The unchanged "
        "program agrees to twelve digits, with and without sequence parallelism, and `shardwise check` finds nothing "
        "wrong with it, nor does it with `--global`, nor with `--partials explicit` as well, nor with `--ranks all`. "
        "Bugs in which ranks diverge come to no numbers: they hang, and are proven in one process that sees it.",
        "",
        short_table(rows),
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
    numbers = f"First loss off by {_loss(row)}, worst gradient by {_gradient(row)}"
    where = "" if row.random or row.hang else f" (`{row.difference.parameter}`)"
    if row.hang:
        numbers = f"It hangs: {row.hang}"
    return [
        f"### {bug.title[0].upper()}{bug.title[1:]}",
        "",
        f"{bug.story}{options}",
        "",
        "```diff",
        *_diff(bug),
        "```",
        "",
        f"{numbers}{where}. {verdict}",
    ]


def _diff(bug: Bug) -> list[str]:
    source = Path(PROGRAM, bug.file).read_text()
    changed = source.replace(bug.old, bug.new)
    diff = unified_diff(source.splitlines(), changed.splitlines(), bug.file, bug.file, n=1, lineterm="")
    return [line for line in diff if not line.startswith(("---", "+++", "@@"))]


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
    return "-" if row.random else _percent(row.difference.losses[0])


def _gradient(row: Row) -> str:
    if row.hang:
        return "hangs"
    if row.random:
        return f"{_percent(row.difference.replicas)} between ranks"
    return _percent(row.difference.gradient)


def _percent(ratio: float) -> str:
    if ratio < TOLERANCE:
        return "0"
    if ratio >= 10:
        return f"{ratio:.0f} times"
    return "< 1 %" if ratio < 0.01 else f"{ratio:.0%}".replace("%", " %")
