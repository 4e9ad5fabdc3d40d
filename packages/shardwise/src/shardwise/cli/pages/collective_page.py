"""The page of a typed collective or coercion: from which placement to which, and what its gradient takes."""

from __future__ import annotations

from collections.abc import Iterator

from shardwise.diagnostics.printing.printable import columns
from shardwise.op_rules.transitions import TRANSITIONS, Transition

HEADS = ("from", "to", "gradient", "ranks wait in", "law")
KNOWN = tuple(dict.fromkeys(op for op, _, _ in TRANSITIONS))


def collective(op: str) -> str:
    """The page as plain text; ``op`` is one of ``KNOWN``."""
    rows = [row for row in TRANSITIONS.values() if row.op == op and not row.is_noop]
    lines = [
        op,
        f"  call       shardwise.{op}(x, axis, src=..., dst=...)",
        f"  changes    {_changes(rows)}",
        "",
        "along one mesh axis",
        *_table([HEADS, *map(_cells, rows)]),
        "",
        *_notes(rows),
        f'drawn: shardwise draw "{op} {rows[0].src} -> {rows[0].dst}"',
    ]
    return "\n".join(lines)


def _changes(rows: list[Transition]) -> str:
    if any(row.meets(backward=False) for row in rows):
        return "the placement; data moves between ranks"
    return "the placement; no data moves between ranks in forward"


def _cells(row: Transition) -> tuple[str, ...]:
    gradient = "none" if row.backward is None else "{} {} -> {}".format(*row.backward)
    waits = [word for word, backward in (("forward", False), ("backward", True)) if _waits(row, backward)]
    source = f"{row.src}{'*' if row.expert else ''}"
    return source, row.dst, gradient, " and ".join(waits) or "neither", row.law


def _waits(row: Transition, backward: bool) -> bool:
    if not backward:
        return row.meets(backward=False)
    return row.backward is not None and TRANSITIONS[row.backward].meets(backward=False)


def _table(rows: list[tuple[str, ...]]) -> Iterator[str]:
    return (f"  {row}" for row in columns(rows))


def _notes(rows: list[Transition]) -> Iterator[str]:
    if any(row.expert for row in rows):
        yield "* rarely meant in forward code: needs expert_mode=True"
    if any("S" in (row.src, row.dst) for row in rows):
        yield "S stands for S(i), a shard along dim i"
