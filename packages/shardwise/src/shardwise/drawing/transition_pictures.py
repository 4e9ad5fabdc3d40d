"""One collective or coercion as before and after: what each rank holds, who needs what of whom, and its backward."""

from __future__ import annotations

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


def transition_picture(row: Transition, ranks: int = RANKS) -> Picture:
    """The local tensors along one fiber before and after, with an arrow where a rank needs what another one holds."""
    ranks = min(ranks, MOST_RANKS)
    exchanges = row.op == "all_to_all"
    before, after = (_squares(ranks), _squares(ranks, turned=True)) if exchanges else _rows(row, ranks)
    pairs = [(s, t) for s in range(ranks) for t in range(ranks)] if exchanges else senders(row, ranks)
    told = "" if row.backward is None else " {} {} -> {}".format(*row.backward)
    rows: tuple[tuple[Block, ...], ...] = (
        (Words((row.src, *_MEANS.get(row.src[0], ())), Look.STRONG), *before),
        (Arrow((row.op,), across=False, tall=2), *[Words(())] * ranks),
        (Words((row.dst, *_MEANS.get(row.dst[0], ())), Look.STRONG), *after),
    )
    block = Matrix(rows, gap=1)
    moved = [(source, target) for source, target in pairs if source != target]
    needs = {target: [source for source, other in moved if other == target] for target in range(ranks)}
    receives = "; ".join(f"rank {t} from {', '.join(map(str, s))}" for t, s in needs.items() if s)
    notes = [f"backward:{told}" if told else "no gradient goes through", row.law]
    if row.reads == "P" and not exchanges:
        notes.insert(0, f"{LETTERS[0]} = {' + '.join(Symbol(0, rank).text for rank in range(ranks))}, and so on")
    notes.append(f"data goes to {receives}" if receives else "no data moves between ranks")
    if row.expert:
        notes.append("rarely meant in forward code: needs expert_mode=True")
    return Picture(
        f"{row.op} {row.src} -> {row.dst}",
        f"What {ranks} ranks hold before and after {row.op} from {row.src} to {row.dst}.",
        block,
        tuple(notes),
        tuple(Transfer(("before", s), ("after", t)) for s, t in pairs),
    )


def _rows(row: Transition, ranks: int) -> tuple[tuple[Block, ...], tuple[Block, ...]]:
    return (
        rank_frames(held_under(row.reads, ranks), "before"),
        rank_frames(held_after(row, ranks), "after"),
    )


def _squares(ranks: int, *, turned: bool = False) -> tuple[Block, ...]:
    """Row ``r`` of a matrix on rank ``r``; turned, column ``r``."""
    frames = []
    for rank in range(ranks):
        names = [(rank, at) if not turned else (at, rank) for at in range(ranks)]
        own = [Tile((f"{LETTERS[row]}{column}",), row) for row, column in names]
        rows = tuple((tile,) for tile in own) if turned else (tuple(own),)
        frames.append(Frame(Matrix(rows), f"rank {rank}", key=("after" if turned else "before", rank)))
    return tuple(frames)
