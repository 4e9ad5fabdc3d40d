"""One collective or coercion as before and after: what each rank holds, who needs what of whom, and its backward."""

from __future__ import annotations

import math
import re

from shardwise.op_rules.transitions import Transition

from .model import Arrow, Block, Frame, Look, Matrix, Picture, Tile, Transfer, Words
from .symbols import LETTERS, Symbol, held_after, held_under, rank_frames, senders

RANKS = 3
MOST_RANKS = 4
_MEANS = {
    "R": ("the same, each", "rank uses it apart"),
    "I": ("the same, all", "ranks use it alike"),
    "V": ("each its own",),
    "P": ("addends of a sum",),
    "S": ("each a piece",),
}
_OF_ANOTHER_REDUCTION = ("each is one", "of its operands")


def transition_picture(row: Transition, ranks: int = RANKS, *, src: str = "", dst: str = "") -> Picture:
    """The local tensors along one fiber before and after, with an arrow where a rank needs what another one holds.

    ``src``, ``dst``  the placements with the dims that the table leaves open, as ``S(1)``.
    """
    of_all, ranks = ranks, min(ranks, MOST_RANKS)
    src, dst = src or row.src, dst or row.dst
    exchanges = row.op == "all_to_all"
    before, after = _squares(ranks, src, dst) if exchanges else _rows(row, ranks)
    pairs = [(s, t) for s in range(ranks) for t in range(ranks)] if exchanges else senders(row, ranks)
    rows: tuple[tuple[Block, ...], ...] = (
        (Words((src, *_means(row.src)), Look.STRONG), *before),
        (Arrow((row.op,), across=False, tall=2), *[Words(())] * ranks),
        (Words((dst, *_means(row.dst)), Look.STRONG), *after),
    )
    block = Matrix(rows, gap=1)
    moved = [(source, target) for source, target in pairs if source != target]
    needs = {target: [source for source, other in moved if other == target] for target in range(ranks)}
    receives = "; ".join(f"rank {t} from {', '.join(map(str, s))}" for t, s in needs.items() if s)
    notes = [_backward(row, src, dst), f"law: {row.law}"]
    if row.reads.startswith("P") and not exchanges:
        terms = [Symbol(0, rank).text for rank in range(ranks)]
        combined = " + ".join(terms) if row.reduction == "sum" else f"{row.reduction}({', '.join(terms)})"
        notes.insert(0, f"{LETTERS[0]} = {combined}, and so on")
    notes.append(f"data goes to {receives}" if receives else "no data moves between ranks")
    if of_all > ranks:
        notes.append(f"{ranks} of {of_all} ranks are drawn; the others do the same")
    if row.expert:
        notes.append("rarely meant in forward code: needs expert_mode=True")
    return Picture(
        f"{row.op} {src} -> {dst}",
        f"What {ranks} ranks hold before and after {row.op} from {src} to {dst}.",
        block,
        tuple(notes),
        tuple(Transfer(("before", s), ("after", t)) for s, t in pairs),
    )


def _means(letter: str) -> tuple[str, ...]:
    return _MEANS.get(letter, _OF_ANOTHER_REDUCTION)


def _backward(row: Transition, src: str, dst: str) -> str:
    if row.backward is None:
        return "no gradient goes through"
    op, start, end = row.backward
    # The gradient comes in as what went out lies, and leaves as what came in did.
    return f"backward: {op} {dst if start == row.dst else start} -> {src if end == row.src else end}"


def _rows(row: Transition, ranks: int) -> tuple[tuple[Block, ...], tuple[Block, ...]]:
    return (
        rank_frames(held_under(row.reads, ranks), "before"),
        rank_frames(held_after(row, ranks), "after"),
    )


def _squares(ranks: int, src: str, dst: str) -> tuple[tuple[Block, ...], tuple[Block, ...]]:
    """Pieces of a matrix: rows where the dim that is sharded is the outer one, columns where it is the inner one."""
    is_inner = _dim(src) > _dim(dst)
    return _pieces(ranks, is_inner, "before"), _pieces(ranks, not is_inner, "after")


def _dim(place: str) -> float:
    found = re.search(r"-?\d+", place)
    dim = int(found[0]) if found else 0
    return dim if dim >= 0 else math.inf


def _pieces(ranks: int, are_columns: bool, stage: str) -> tuple[Block, ...]:
    frames = []
    for rank in range(ranks):
        names = [(at, rank) if are_columns else (rank, at) for at in range(ranks)]
        own = [Tile((f"{LETTERS[row]}{column}",), row) for row, column in names]
        rows = tuple((tile,) for tile in own) if are_columns else (tuple(own),)
        frames.append(Frame(Matrix(rows), f"rank {rank}", key=(stage, rank)))
    return tuple(frames)
