"""Which moves between placements exist, what does each call do, and what is its backward? Data, one row per move.

Letters: R, I, V, P and S for any S(i). ``backward`` names the row that the gradient takes, so the table is closed: the
backward of every row is a row again, and a double backward is a walk of two steps.
Source: the specification, semantics sections 4 and 5.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from shardwise.types.placement import I, P, PerMeshAxisLocalSpmdType, R, Shard, V

MEETING = frozenset({"all_reduce", "all_gather", "reduce_scatter", "all_to_all"})
"""Ops in which the ranks of an axis wait for each other."""


@dataclass(frozen=True, slots=True)
class Move:
    """One admitted (op, src, dst).

    ``expert``    rarely meant in forward code: needs ``expert_mode=True``.
    ``backward``  the row of the gradient's move.
    ``law``       one line: why the value, or the gradient, is right.
    ``reads``     the placement as which the operand is read; differs from ``src`` only where V is read as P.
    ``through``   a composition src -> through -> dst; ``backward`` is then the move of the first leg's gradient, and
                  the second leg's gradient is a plain re-reading of the same local tensors.
    """

    op: str
    src: str
    dst: str
    expert: bool
    backward: tuple[str, str, str]
    law: str
    reads: str = ""
    through: str = ""

    def __post_init__(self) -> None:
        if not self.reads:
            object.__setattr__(self, "reads", self.src)

    @property
    def is_noop(self) -> bool:
        """Nothing changes but, at most, the name: the call hands its operand back."""
        return self.op in ("convert", "reinterpret") and _base(self.src) == _base(self.dst)

    def meets(self, *, backward: bool) -> bool:
        """True if ranks wait for each other in it, or, where a gradient is taken, in its backward."""
        return self.op in MEETING or (backward and self.backward[0] in MEETING)


def _base(letter: str) -> str:
    return "V" if letter == "S" else letter


def _rows() -> list[Move]:
    rows = [
        Move("all_reduce", "P", "R", False, ("all_reduce", "P", "R"), "n uses of the sum: their gradients add up"),
        Move(
            "all_reduce", "P", "I", False, ("convert", "I", "R"), "one use of the sum: every addend gets its gradient"
        ),
        Move("all_reduce", "V", "R", False, ("all_reduce", "P", "R"), "V read as P", reads="P"),
        Move("all_reduce", "V", "I", False, ("convert", "I", "R"), "V read as P", reads="P"),
    ]
    for part in "VS":
        rows += [
            Move("all_gather", part, "R", False, ("reduce_scatter", "P", part), "n uses: sum, each rank keeps its own"),
            Move("all_gather", part, "I", False, ("convert", "I", part), "one use: each rank takes its own piece"),
            Move("reduce_scatter", "P", part, False, ("all_gather", part, "R"), "each addend feeds every piece"),
            Move("reduce_scatter", "V", part, False, ("all_gather", part, "R"), "V read as P", reads="P"),
            Move(
                "convert", "R", part, False, ("convert", part, "P"), "the other ranks' pieces get zero from this rank"
            ),
            Move("convert", "I", part, False, ("all_gather", part, "I"), "every rank needs the whole gradient"),
            Move(
                "convert", part, "P", True, ("convert", "R", part), "disjoint pieces padded with zeros sum to the whole"
            ),
        ]
        rows += [
            Move("all_to_all", part, other, False, ("all_to_all", other, part), "a permutation of pieces")
            for other in "VS"
        ]
    rows += [
        Move("convert", "R", "I", True, ("convert", "I", "P"), "equal values; one rank's gradient stands for all"),
        Move("convert", "I", "R", False, ("all_reduce", "P", "I"), "equal values; n uses, so gradients add up"),
        Move("convert", "R", "P", False, ("convert", "R", "P"), "rank 0 keeps the value, zeros elsewhere"),
        Move("convert", "I", "P", True, ("convert", "R", "I"), "rank 0 keeps the value, zeros elsewhere"),
        Move("reinterpret", "R", "I", True, ("convert", "I", "P"), "equal values; one rank's gradient stands for all"),
        Move("reinterpret", "R", "V", True, ("reinterpret", "V", "P"), "forgets equality; contributions add up"),
        Move("reinterpret", "R", "P", True, ("reinterpret", "R", "P"), "n equal addends: the value is multiplied by n"),
        Move("reinterpret", "I", "R", True, ("all_reduce", "P", "I"), "equal values; n uses, so gradients add up"),
        Move("reinterpret", "I", "V", False, ("all_reduce", "P", "I"), "I to R, then R to V", through="R"),
        Move("reinterpret", "I", "P", False, ("all_reduce", "P", "I"), "I to R, then R to P", through="R"),
        Move("reinterpret", "V", "P", False, ("reinterpret", "R", "V"), "the value becomes the sum of the pieces"),
    ]
    # Nothing to do, and nothing to do in backward.
    rows += [Move(op, a, a, False, (op, a, a), "nothing changes") for op in ("convert", "reinterpret") for a in "RIVP"]
    rows += [
        Move("convert", src, dst, False, ("convert", dst, src), "S(i) is V with a claim about the pieces")
        for src, dst in ("SS", "SV", "VS")
    ]
    return rows


MOVES: dict[tuple[str, str, str], Move] = {(row.op, row.src, row.dst): row for row in _rows()}

ALIASES = {"shard": "convert", "unshard": "all_gather", "invariant_to_replicate": "convert"}
"""Ops that are another op under a second name."""

DEFAULTS: dict[str, dict[str, Any]] = {
    "all_reduce": {"src": P},
    "all_gather": {"src": V},
    "reduce_scatter": {"src": P, "dst": V},
    "all_to_all": {"src": V, "dst": V},
    "convert": {},
    "reinterpret": {},
    "invariant_to_replicate": {"src": I, "dst": R},
}
"""What src and dst are when the caller leaves them out."""

ROUTES: dict[tuple[str, str], str] = {
    **{(part, whole): "all_gather" for part in "VS" for whole in "RI"},
    **{("P", whole): "all_reduce" for whole in "RI"},
    **{("P", part): "reduce_scatter" for part in "VS"},
    ("S", "S"): "all_to_all",
    **{(src, dst): "convert" for src in "RI" for dst in "RIVSP"},
    **{(part, dst): "convert" for part in "VS" for dst in "VP"},
    ("V", "S"): "convert",
    ("P", "P"): "convert",
}
"""Which op takes ``redistribute`` from src to dst."""

REDUCTIONS = frozenset({"all_reduce", "reduce_scatter"})
"""Ops that add numbers from different ranks, where the dtype on the wire decides what is lost."""


def letter(placement: Any) -> str:
    """R, I, V, P, or S for any S(i); the empty string for anything that is not a placement."""
    if isinstance(placement, Shard):
        return "S"
    return placement.value if isinstance(placement, PerMeshAxisLocalSpmdType) else ""


def find_move(op: str, src: Any, dst: Any) -> Move | None:
    """The row for a call; None if there is no such move."""
    return MOVES.get((ALIASES.get(op, op), letter(src), letter(dst)))


def result_of(op: str, src: Any, dst: Any) -> Any:
    """What the result's placement on the axis is: ``dst`` for an admitted call, None for one that is refused."""
    return None if find_move(op, src, dst) is None else dst
