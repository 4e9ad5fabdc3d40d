"""What collectives and coercions do to placements: one row per transition, and why others are refused.

Letters: R, I, V, P, S for any S(i), and X, Y for V or S. ``backward`` names the row that the gradient takes, so the
table is closed: the backward of every row is a row again, and a double backward is a walk of two steps. What a
transition does to a partition spec, and so to a whole type, is ``transition_types``.
Functions of ``torch.distributed`` are rows of ``raw_collectives``, which name these.
Of other reductions than the sum, P(max) and P(min) have rows of their own, which no gradient goes through.
Source: docs/semantics.md sections 4, 5 and 9; functions as documented by torch.distributed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from shardwise._pictured import Pictured
from shardwise.diagnostics.errors import shown
from shardwise.diagnostics.finding import Diagnosis
from shardwise.types.placement import I, P, PerMeshAxisLocalSpmdType, PerMeshAxisSpmdType, R, Shard, V

MEETING = frozenset({"all_reduce", "all_gather", "reduce_scatter", "all_to_all"})
"""Ops in which the ranks of an axis wait for each other."""
REDUCTIONS = frozenset({"all_reduce", "reduce_scatter"})
"""Ops that add numbers from different ranks, where the dtype on the wire decides what is lost."""

Key = tuple[str, str, str]
"""Op, letter of src, letter of dst."""


@dataclass(frozen=True, slots=True)
class Gate:
    """Why a row needs ``expert_mode=True``: what the call does to a value, and what was probably meant."""

    effect: str
    help: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Transition(Pictured):
    """One admitted (op, src, dst).

    ``backward``  the row of the gradient's transition; None: no gradient goes through.
    ``law``       one line: why the value, or the gradient, is right.
    ``expert``    set where it is rarely meant in forward code.
    ``reads``     the placement as which the operand is read; differs from ``src`` only where V is read as P.
    ``through``   a composition src -> through -> dst; ``backward`` is then the transition of the first leg's gradient,
                  and the second leg's gradient is a plain re-reading of the same local tensors.
    """

    op: str
    src: str
    dst: str
    backward: Key | None
    law: str
    expert: Gate | None = None
    reads: str = ""
    through: str = ""

    def __post_init__(self) -> None:
        if not self.reads:
            object.__setattr__(self, "reads", self.src)

    @property
    def is_noop(self) -> bool:
        """Nothing changes but, at most, the name: the call hands its operand back."""
        return self.op in ("convert", "reinterpret") and _base(self.src) == _base(self.dst)

    @property
    def ndim_change(self) -> int:
        """How many dims more the result has: V is one entry per rank, stacked on a new dim 0 or taken off it."""
        if self.op in ("reinterpret", "all_to_all", "all_reduce") or self.is_noop:
            return 0
        if self.op == "reduce_scatter" or self.src in "RI":
            return -1 if self.dst == "V" else 0
        return 1 if self.src == "V" else 0

    def meets(self, *, backward: bool) -> bool:
        """True if ranks wait for each other in it, or, where a gradient is taken, in its backward."""
        return self.op in MEETING or (backward and self.backward is not None and self.backward[0] in MEETING)

    @property
    def reduction(self) -> str:
        """The name of the reduction that the op makes: "sum" but for P(max) and P(min)."""
        return self.src[2:-1] or "sum"


def _base(letter: str) -> str:
    return "V" if letter == "S" else letter


@dataclass(frozen=True, slots=True)
class Absent:
    """Pairs of ``op`` without a row: ``*`` stands for any letter, ``?`` for what is no placement.

    Texts may use {op}, {src}, {dst}, {axis} (as the caller wrote them) and {x} (the operand's name). The remedy is a
    call that can be pasted.
    """

    op: str
    src: str
    dst: str
    message: str
    help: tuple[str, ...] = ()


_AS_IT_IS = "{x} as it is: it holds the whole value on every rank already"
_SCALED = "equal values would be scaled by the axis size"
_LOCAL_BITS = "reinterpret does not support S(i): it keeps the local bits and claims nothing about where pieces belong"
_ONE_GRADIENT = Gate(
    "keeps the value and lets one rank's gradient stand for all",
    ("keep {x} at R and convert it where it is used: convert({x}, {axis}, src=R, dst=V)",),
)

# fmt: off
_TABLE: tuple[Transition | Absent, ...] = (
    Transition("all_reduce", "P", "R", ("all_reduce", "P", "R"), "n uses of the sum: their gradients add up"),
    Transition("all_reduce", "P", "I", ("convert", "I", "R"), "one use of the sum: every addend gets its gradient"),
    Transition("all_reduce", "V", "R", ("all_reduce", "P", "R"), "V read as P", reads="P"),
    Transition("all_reduce", "V", "I", ("convert", "I", "R"), "V read as P", reads="P"),
    *(Transition("all_reduce", f"P({kind})", dst, None, f"the {kind} of all, on every rank")
      for kind in ("max", "min") for dst in "RI"),
    *(Transition("reduce_scatter", f"P({kind})", dst, None, f"the {kind} of all, each rank keeps a piece")
      for kind in ("max", "min") for dst in "VS"),
    Absent("all_reduce", "RI", "*",
           "all_reduce sums over {axis}, so src must be P, got {src}: " + _SCALED, (_AS_IT_IS,)),
    Absent("all_reduce", "S?", "*", "src of all_reduce must be P, got {src}",
           ("all_gather({x}, {axis}, src={src}, dst=R)",)),
    Absent("all_reduce", "*", "VSP?",
           "dst of all_reduce must be R or I, got {dst}: after the sum every rank holds the same value",
           ("all_reduce({x}, {axis}, src=P, dst=R)", "reduce_scatter({x}, {axis}, src=P, dst=S(0)) to keep one piece")),

    Transition("all_gather", "X", "R", ("reduce_scatter", "P", "X"), "n uses: sum, each rank keeps its own"),
    Transition("all_gather", "X", "I", ("convert", "I", "X"), "one use: each rank takes its own piece"),
    Absent("all_gather", "P", "*",
           "src of all_gather must be V or S(i), got P: gathering pending sums does not add them up",
           ("all_reduce({x}, {axis}, src=P, dst=R)",)),
    Absent("all_gather", "RI?", "*",
           "src of all_gather must be V or S(i), got {src}: every rank holds the value already", (_AS_IT_IS,)),
    Absent("all_gather", "*", "*",
           "dst of all_gather must be R or I, got {dst}: afterwards every rank holds all pieces",
           ("all_gather({x}, {axis}, src={src}, dst=R)",)),

    Transition("reduce_scatter", "P", "X", ("all_gather", "X", "R"), "each addend feeds every piece"),
    Transition("reduce_scatter", "V", "X", ("all_gather", "X", "R"), "V read as P", reads="P"),
    Absent("reduce_scatter", "RI", "*",
           "reduce_scatter sums over {axis}, so src must be P, got {src}: " + _SCALED,
           ("convert({x}, {axis}, src={src}, dst=S(0)) to keep one piece",)),
    Absent("reduce_scatter", "S", "VS", "src of reduce_scatter must be P, got {src}",
           ("all_to_all({x}, {axis}, src={src}, dst={dst}) to move pieces without adding them",)),
    Absent("reduce_scatter", "S?", "*", "src of reduce_scatter must be P, got {src}",
           ("all_gather({x}, {axis}, src={src}, dst=R) to put the pieces together",)),
    Absent("reduce_scatter", "*", "*",
           "dst of reduce_scatter must be V or S(i), got {dst}: each rank keeps one piece of the sum",
           ("all_reduce({x}, {axis}, src=P, dst=R) to keep the whole sum",)),

    Transition("all_to_all", "X", "Y", ("all_to_all", "Y", "X"), "a permutation of pieces"),
    Absent("all_to_all", "*", "*", "src and dst of all_to_all must be V or S(i), got {src} and {dst}",
           ("all_to_all({x}, {axis}, src=S(0), dst=S(1))",)),

    Transition("convert", "R", "X", ("convert", "X", "P"), "the other ranks' pieces get zero from this rank"),
    Transition("convert", "I", "X", ("all_gather", "X", "I"), "every rank needs the whole gradient"),
    Transition("convert", "V", "P", ("convert", "R", "V"), "disjoint pieces padded with zeros sum to the whole",
               Gate("stacks: it adds a dim with one slot per rank and zeros in the others' slots",
                    ("reinterpret({x}, {axis}, src=V, dst=P) if the ranks' values are addends",))),
    Transition("convert", "S", "P", ("convert", "R", "S"), "disjoint pieces padded with zeros sum to the whole",
               Gate("pads this rank's piece with zeros to the whole size",
                    ("all_gather({x}, {axis}, src={src}, dst=R)",))),
    Transition("convert", "R", "I", ("convert", "I", "P"), "equal values; one rank's gradient stands for all",
               _ONE_GRADIENT),
    Transition("convert", "I", "R", ("all_reduce", "P", "I"), "equal values; n uses, so gradients add up"),
    Transition("convert", "R", "P", ("convert", "R", "P"), "rank 0 keeps the value, zeros elsewhere"),
    Transition("convert", "I", "P", ("convert", "R", "I"), "rank 0 keeps the value, zeros elsewhere",
               Gate("keeps the value on rank 0 of {axis} and puts zeros elsewhere",
                    ("convert({x}, {axis}, src=I, dst=R)",))),
    *(Transition("convert", one, one, ("convert", one, one), "nothing changes") for one in "RIVP"),
    *(Transition("convert", src, dst, ("convert", dst, src), "S(i) is V with a claim about the pieces")
      for src, dst in ("SS", "SV", "VS")),
    Absent("convert", "P", "RI", "convert does not communicate, and P -> {dst} needs a sum over {axis}: use all_reduce",
           ("all_reduce({x}, {axis}, src=P, dst={dst})",)),
    Absent("convert", "P", "*",
           "convert does not communicate, and P -> {dst} needs a sum over {axis}: use reduce_scatter (or all_reduce)",
           ("reduce_scatter({x}, {axis}, src=P, dst={dst})",)),
    Absent("convert", "VS", "RI",
           "convert {src} -> {dst} is not supported: convert does not communicate, and every rank needs all pieces",
           ("all_gather({x}, {axis}, src={src}, dst={dst})",)),
    Absent("convert", "*", "*", "convert {src} -> {dst} is not supported"),

    Transition("reinterpret", "R", "I", ("convert", "I", "P"), "equal values; one rank's gradient stands for all",
               _ONE_GRADIENT),
    Transition("reinterpret", "R", "V", ("reinterpret", "V", "P"), "forgets equality; contributions add up",
               Gate("forgets that the ranks' values are equal",
                    ("convert({x}, {axis}, src=R, dst=S(0)) to keep one piece per rank",
                     "{x} as it is: R mixes freely with V"))),
    Transition("reinterpret", "R", "P", ("reinterpret", "R", "P"), "n equal addends: the value is multiplied by n",
               Gate("multiplies the value by the size of {axis}",
                    ("convert({x}, {axis}, src=R, dst=P) to keep the value",))),
    Transition("reinterpret", "I", "R", ("all_reduce", "P", "I"), "equal values; n uses, so gradients add up",
               Gate("keeps the local bits and the value, which is what convert says plainly",
                    ("convert({x}, {axis}, src=I, dst=R)",))),
    Transition("reinterpret", "I", "V", ("all_reduce", "P", "I"), "I to R, then R to V", through="R"),
    Transition("reinterpret", "I", "P", ("all_reduce", "P", "I"), "I to R, then R to P", through="R"),
    Transition("reinterpret", "V", "P", ("reinterpret", "R", "V"), "the value becomes the sum of the pieces"),
    *(Transition("reinterpret", one, one, ("reinterpret", one, one), "nothing changes") for one in "RIVP"),
    Absent("reinterpret", "S", "RI", _LOCAL_BITS, ("all_gather({x}, {axis}, src={src}, dst={dst})",)),
    Absent("reinterpret", "S", "P", _LOCAL_BITS,
           ("reinterpret({x}, {axis}, src=V, dst=P) if the ranks' pieces are addends",)),
    Absent("reinterpret", "S", "*", _LOCAL_BITS,
           ("convert({x}, {axis}, src={src}, dst=V) to forget where the pieces belong",)),
    Absent("reinterpret", "P", "S", _LOCAL_BITS, ("reduce_scatter({x}, {axis}, src=P, dst={dst})",)),
    Absent("reinterpret", "*", "S", _LOCAL_BITS, ("convert({x}, {axis}, src={src}, dst={dst})",)),
    Absent("reinterpret", "P", "RI",
           "reinterpret P -> {dst} is not supported: it is ill-defined, the ranks' addends differ",
           ("all_reduce({x}, {axis}, src=P, dst={dst})",)),
    Absent("reinterpret", "P", "*",
           "reinterpret P -> {dst} is not supported: it is ill-defined, the gradient would depend on a sum never taken",
           ("reduce_scatter({x}, {axis}, src=P, dst={dst})",)),
    Absent("reinterpret", "V", "RI",
           "reinterpret V -> {dst} is not supported: it cannot be asserted that the ranks hold equal values",
           ("all_gather({x}, {axis}, src=V, dst={dst})",
            "reinterpret_no_grad({x}, {axis}, dst={dst}) if they are equal")),
    Absent("reinterpret", "*", "*", "reinterpret {src} -> {dst} is not supported"),

    Absent("redistribute", "*", "*", "redistribute cannot go from {src} to {dst}"),
)
# fmt: on


def reduced_source(src: PerMeshAxisSpmdType, op: str) -> PerMeshAxisSpmdType:
    """What a typed reduction with this ``op`` reads its operand as: P(max) for "max", whatever sum the caller named."""
    if op in ("sum", "avg") or (isinstance(src, PerMeshAxisLocalSpmdType) and src.is_extremum):
        return src
    return P(op) if src in (P, V) else src


def _spelt_out() -> Iterator[Transition]:
    """The rows, with X and Y read as V and as S."""
    for row in _TABLE:
        if isinstance(row, Transition):
            for x in "VS" if "X" in (row.src, row.dst) else "X":
                for y in "VS" if "Y" in (row.src, row.dst) else "Y":
                    read = {"X": x, "Y": y}
                    src, dst, reads = (read.get(one, one) for one in (row.src, row.dst, row.reads))
                    backward = row.backward
                    if backward is not None:
                        op, back, forth = backward
                        backward = (op, read.get(back, back), read.get(forth, forth))
                    yield replace(row, src=src, dst=dst, backward=backward, reads=reads)


TRANSITIONS: dict[Key, Transition] = {(row.op, row.src, row.dst): row for row in _spelt_out()}

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
    **{(f"P({kind})", whole): "all_reduce" for kind in ("max", "min") for whole in "RI"},
    **{(f"P({kind})", part): "reduce_scatter" for kind in ("max", "min") for part in "VS"},
    ("S", "S"): "all_to_all",
    **{(src, dst): "convert" for src in "RI" for dst in "RIVSP"},
    **{(part, dst): "convert" for part in "VS" for dst in "VP"},
    ("V", "S"): "convert",
    ("P", "P"): "convert",
}
"""Which op takes ``redistribute`` from src to dst."""


def letter(placement: object) -> str:
    """R, I, V, P, or S for any S(i); the empty string for anything that is not a placement."""
    if isinstance(placement, Shard):
        return "S"
    return placement.value if isinstance(placement, PerMeshAxisLocalSpmdType) else ""


def find_transition(op: str, src: object, dst: object) -> Transition | None:
    """The row for these letters, gated or not; None if there is none."""
    return TRANSITIONS.get((ALIASES.get(op, op), letter(src), letter(dst)))


def transition(
    op: str, src: object, dst: object, *, expert_mode: bool = False, axis: object = "axis", x: str = "x"
) -> Transition | Diagnosis:
    """The row for a call of ``op`` with these placements, or what to say about the call."""
    op = ALIASES.get(op, op)
    if isinstance(src, str) or isinstance(dst, str):
        return Diagnosis(
            "SW202",
            f"src and dst of {op} are placements and not strings, got src={shown(src)}, dst={shown(dst)}",
            help=("from shardwise import R, I, V, P, S",),
        )
    row = find_transition(op, src, dst)
    moves = op == "convert" and letter(src) == letter(dst) == "S" and src != dst
    if row is not None and not moves and (expert_mode or not row.expert):
        return row
    words = {"op": op, "src": shown(src), "dst": shown(dst), "axis": shown(axis), "x": x}
    pasted = words | {"axis": f'"{axis}"'} if isinstance(axis, str) else words
    if row is None:
        return _absent(op, letter(src) or "?", letter(dst) or "?", words, pasted)
    if row.expert and not expert_mode:
        return Diagnosis(
            "SW203",
            f"{op} {src} -> {dst} {row.expert.effect.format(**words)}; it is rarely meant and needs expert_mode=True",
            help=tuple(line.format(**pasted) for line in row.expert.help),
        )
    return Diagnosis(
        "SW202",
        f"convert {src} -> {dst} would move pieces between ranks, and convert does not communicate: use all_to_all",
        help=(f"all_to_all({x}, {pasted['axis']}, src={src}, dst={dst})",),
    )


def _absent(op: str, src: str, dst: str, words: dict[str, str], pasted: dict[str, str]) -> Diagnosis:
    """``words`` fill messages, ``pasted`` the lines of help."""
    further = next((one for one in (src, dst) if one not in {*"RIVPS?"}), None)
    if further is not None:
        known = f"{op} is not defined for {further}: of pending reductions it knows the sum, P"
        meets = further == src and any(key[:2] == (op, src) for key in TRANSITIONS)
        discharges = further == src and any(key[1] == src for key in TRANSITIONS)
        way = f"all_reduce({words['x']}, {pasted['axis']}, src={src}, dst=R)"
        said = f"{op} cannot go from {src} to {words['dst']}" if meets else known
        return Diagnosis("SW202", said, help=(way,) * discharges)
    for row in _TABLE:
        if isinstance(row, Absent) and row.op == op and _matches(row.src, src) and _matches(row.dst, dst):
            # A remedy that would repeat what is no placement helps nobody.
            unusable = [name for name, found in (("{src}", src), ("{dst}", dst)) if found == "?"]
            lines = [line for line in row.help if not any(name in line for name in unusable)]
            help_lines = tuple(line.format(**pasted) for line in lines)
            return Diagnosis("SW202", row.message.format(**words), help=help_lines)
    return Diagnosis("SW202", f"{op} cannot go from {words['src']} to {words['dst']}")


def _matches(letters: str, found: str) -> bool:
    return letters == "*" or found in letters
