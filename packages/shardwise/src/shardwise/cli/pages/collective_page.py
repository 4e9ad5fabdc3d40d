"""The page of a typed collective or coercion: from which placement to which, and what its gradient takes."""

from __future__ import annotations

from collections.abc import Iterator

from shardwise.diagnostics.printing.printable import columns
from shardwise.diagnostics.printing.quantities import byte_count
from shardwise.op_rules.transitions import TRANSITIONS, Transition
from shardwise.planner.cost import cost_of

HEADS = ("from", "to", "gradient", "ranks wait in", "law")
RANKS, NUMBERS = 4, 12
"""Of the example of what is received: so many ranks, with so many numbers each."""
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
        f"cost over {RANKS} ranks with {NUMBERS} numbers each, float32",
        *_table([("from", "to", "received by a rank", "for the gradient"), *map(_received, rows)]),
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


def _received(row: Transition) -> tuple[str, ...]:
    """What a rank receives in forward, and of the gradient, which arrives with as many numbers as the result has."""
    gradient = "none" if row.backward is None else _bytes(row.backward[0], _numbers_after(row))
    return row.src, row.dst, _bytes(row.op, NUMBERS), gradient


def _bytes(op: str, numbers: int) -> str:
    received = cost_of(op, numbers, RANKS).bytes
    return byte_count(received) if received else "nothing"


def _numbers_after(row: Transition) -> int:
    """How many numbers a rank has of the result: a piece where the whole is cut, the whole where pieces are joined."""
    if row.op == "reduce_scatter" or (row.op == "convert" and row.src in "RI" and row.dst in "VS"):
        return NUMBERS // RANKS
    joined = row.op == "all_gather" or (row.op == "convert" and row.src in "VS")
    return NUMBERS * RANKS if joined else NUMBERS


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
