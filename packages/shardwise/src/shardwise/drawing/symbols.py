"""What each rank holds under a placement, in letters: the value meant is ``a b c``, one piece of it a letter.

Under R and I a rank holds ``a b c``, under S(i) and V its own letter, under P an addend of each: rank 1 ``a₁ b₁ c₁``.
"""

from __future__ import annotations

from dataclasses import dataclass

from shardwise.op_rules.transitions import Transition, letter
from shardwise.types.placement import PerMeshAxisSpmdType

from .model import Block, Frame, Look, Matrix, Tile

LETTERS = "abcdefgh"
_SUBSCRIPTS = str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉")


@dataclass(frozen=True, slots=True)
class Symbol:
    """A piece of the value (its number); ``addend``: of which rank it is a term, None for the whole piece."""

    piece: int
    addend: int | None = None
    is_zero: bool = False

    @property
    def text(self) -> str:
        if self.is_zero:
            return "0"
        own = "" if self.addend is None else str(self.addend).translate(_SUBSCRIPTS)
        return LETTERS[self.piece] + own


Held = tuple[Symbol, ...]


def held_under(place: str, ranks: int) -> list[Held]:
    """What every rank holds under the placement with this letter."""
    if place in "RI":
        return [tuple(Symbol(at) for at in range(ranks))] * ranks
    if place in "VS":
        return [(Symbol(rank),) for rank in range(ranks)]
    return [tuple(Symbol(at, rank) for at in range(ranks)) for rank in range(ranks)]


def held_after(row: Transition, ranks: int) -> list[Held]:
    """What every rank holds after a transition of what ``held_under`` gives; the local bits, whatever they mean now."""
    before = held_under(row.reads, ranks)
    if row.op == "reinterpret":
        return before
    if row.op == "convert" and row.dst == "P":
        if row.src == "P":
            return before
        kept = {rank: {symbol.piece for symbol in held} for rank, held in enumerate(before)}
        if row.src in "RI":
            kept = {rank: set(range(ranks)) if rank == 0 else set() for rank in range(ranks)}
        return [tuple(Symbol(at, is_zero=at not in kept[rank]) for at in range(ranks)) for rank in range(ranks)]
    return held_under(row.dst, ranks)


def senders(row: Transition, ranks: int) -> list[tuple[int, int]]:
    """Pairs of ranks, of which the second needs what the first holds. Every rank needs what it keeps."""
    before, after = held_under(row.reads, ranks), held_after(row, ranks)
    found = []
    for target, needed in enumerate(after):
        pieces = {symbol.piece for symbol in needed if not symbol.is_zero}
        own = {symbol.piece for symbol in before[target]}
        alone = not row.reads.startswith("P") or row.op in ("convert", "reinterpret")
        for source, held in enumerate(before):
            has = pieces & {symbol.piece for symbol in held}
            if source == target or (has and not (alone and has <= own)):
                found.append((source, target))
    return found


def tiles(held: Held, *, tone_of_rank: int | None = None) -> Block:
    """The symbols beside each other; a tone for every piece, or for the rank whose addends they are."""
    return Matrix(
        (
            tuple(
                Tile(
                    (symbol.text,),
                    None if symbol.is_zero else symbol.piece if tone_of_rank is None else tone_of_rank,
                    Look.FAINT if symbol.is_zero else Look.PLAIN,
                    least=2,
                )
                for symbol in held
            ),
        )
    )


def rank_frames(holds: list[Held], key: str = "") -> tuple[Block, ...]:
    """One frame for every rank with what it holds."""
    return tuple(
        Frame(tiles(held), f"rank {rank}", key=(key, rank) if key else None) for rank, held in enumerate(holds)
    )


def letters_of(place: PerMeshAxisSpmdType) -> str:
    """The letter under which the tables know a placement."""
    return letter(place)
