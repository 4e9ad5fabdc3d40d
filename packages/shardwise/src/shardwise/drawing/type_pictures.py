"""The five types in one figure, and the table of transitions as a diagram: both read off the tables of the checker."""

from __future__ import annotations

from shardwise.op_rules.transitions import TRANSITIONS, Transition
from shardwise.types.placement import I, P, PerMeshAxisSpmdType, R, S, V

from .model import Block, Heading, Look, Matrix, Picture, Sequence, Tile, Words
from .symbols import LETTERS, Symbol, held_under, letters_of, rank_frames, tiles

RANKS = 2
TYPES: tuple[PerMeshAxisSpmdType, ...] = (R, I, V, P, S(0))
_NAMES = {"R": "replicate", "I": "invariant", "V": "varying", "P": "partial", "S": "shard"}
_MEANT = {
    "R": "any one of them",
    "I": "any one of them",
    "V": "the list of them",
    "P": "their sum, pending",
    "S": "them, put together",
}
_GRADIENT = {
    "R": "of n uses: their gradients add up",
    "I": "one computation, repeated: one gradient",
    "V": "each rank its own",
    "P": "every addend gets that of the sum",
    "S": "cut the same way",
}
# V and S(i) differ in whether anyone knows where the pieces belong, and seldom in what may be done.
_ROWS = (("R", "R"), ("I", "I"), ("V / S", "VS"), ("P", "P"))


def five_types() -> Picture:
    """Each of the five types: what three ranks hold, the value that is meant, and the type of its gradient."""
    letters = " and ".join(LETTERS[:RANKS])
    addends = " and ".join(Symbol(0, rank).text for rank in range(RANKS))
    told = "; ".join(f"{place!r} has a gradient of type {place.backward_type()!r}" for place in TYPES)
    return Picture(
        "The five types along one mesh axis, and their duals",
        f"A table with a row for each type: what the ranks hold, the value meant, the type of the gradient. {told}.",
        _table_of(TYPES),
        (
            f"{letters} are pieces of the value; {addends} are addends whose sum is {LETTERS[0]}",
            "taking the dual twice changes nothing: R and P are each other's, I, V and S(i) their own",
        ),
    )


def type_along_an_axis(place: PerMeshAxisSpmdType) -> Picture:
    """The row of the five types that is ``place``, or one like it for a pending reduction of another kind."""
    told = f"has a gradient of type {place.dual!r}" if _has_gradient(place) else "has no gradient"
    return Picture(
        f"{place!r} along one mesh axis",
        f"What the ranks hold under {place!r}, the value meant, the type of the gradient: {place!r} {told}.",
        _table_of((place,)),
    )


def _table_of(places: tuple[PerMeshAxisSpmdType, ...]) -> Matrix:
    heads = ("type", f"what {RANKS} ranks hold", "the value meant", "its gradient")
    return Matrix((tuple(Words((head,), Look.TITLE) for head in heads), *map(_row, places)), gap=1)


def _has_gradient(place: PerMeshAxisSpmdType) -> bool:
    return place.reduction is None or place.reduction.dual is not None


def _row(place: PerMeshAxisSpmdType) -> tuple[Block, ...]:
    own = letters_of(place)
    name, word, gradient = (told.get(own, "") for told in (_NAMES, _MEANT, _GRADIENT))
    if not name:
        name, word = _NAMES["P"], f"their {place.word.removeprefix('a pending ')}, pending"
    dual, gradient = (repr(place.dual), gradient) if _has_gradient(place) else ("none", "it flows through no extremum")
    holds = held_under(own, RANKS)
    meant: Block = tiles(held_under("R", RANKS)[0])
    if own == "V":
        meant = Sequence(tuple(tiles(held) for held in holds))
    return (
        Words((repr(place), name), Look.STRONG),
        Sequence(rank_frames(holds)),
        Sequence((meant, Words((word,), Look.FAINT)), across=False, gap=0),
        Sequence((Words((dual,), Look.STRONG), Words(_broken(gradient))), across=False, gap=0),
    )


def _broken(text: str, width: int = 20) -> tuple[str, ...]:
    lines = [""]
    for word in text.split():
        if lines[-1] and len(lines[-1]) + 1 + len(word) > width:
            lines.append(word)
        else:
            lines[-1] = f"{lines[-1]} {word}".strip()
    return tuple(lines)


def transition_table() -> Picture:
    """From which type to which with which call, and what the gradient takes: every row of the table of transitions."""
    names = tuple(name for name, _ in _ROWS)
    rows = tuple(tuple(_meeting(sources, targets) for _, targets in _ROWS) for _, sources in _ROWS)
    return Picture(
        "Every way from one type to another",
        "A table from type to type: the calls that lead there, and below each the call that its gradient takes. "
        + " ".join(_told(one) + "." for one in _shown("RIVSP", "RIVSP")),
        Matrix(rows, Heading("to →", names), Heading("from ↓", names)),
        (
            "↩ what the gradient takes; V / S: V, or S(i) where the piece's place is known",
            "* is rarely meant in forward code and needs expert_mode=True; dashed: nothing else leads there",
            "all_reduce and reduce_scatter also take V, and read it as P",
            "all_reduce and reduce_scatter take P(max) and P(min) as they take P; no gradient goes through",
        ),
    )


def _shown(sources: str, targets: str) -> list[Transition]:
    """The rows between these types, without those that change nothing, go through a third one, or read V as P."""
    return [
        row
        for row in TRANSITIONS.values()
        if row.src in sources and row.dst in targets and row.reads == row.src and not row.through and not row.is_noop
    ]


def _meeting(sources: str, targets: str) -> Tile:
    rows = _shown(sources, targets)
    pairs: dict[tuple[str, str], None] = {}
    for row in rows:
        backward = "no gradient" if row.backward is None else "{} {}→{}".format(*map(_merged, row.backward))
        pairs[f"{row.op}{'*' if row.expert else ''}", f"↩ {backward}"] = None
    flat = tuple(line for pair in pairs for line in pair)
    look = Look.FAINT if not rows else Look.DASHED if all(row.expert for row in rows) else Look.PLAIN
    return Tile(flat or ("–",), look=look)


def _merged(word: str) -> str:
    return "V/S" if word in ("V", "S") else word


def _told(row: Transition) -> str:
    backward = "no gradient" if row.backward is None else "gradient {} {} to {}".format(*row.backward)
    return f"{row.op} from {row.src} to {row.dst}, {backward}"
