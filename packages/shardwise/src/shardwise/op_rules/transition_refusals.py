"""What do we say when a collective or coercion cannot go from src to dst? Message and remedies, as data.

Patterns are tried in order; ``*`` stands for any letter. Texts may use {op}, {src}, {dst} (as the caller wrote them),
{axis} (as the caller wrote it) and {x} (the operand's name). The remedy is a call that can be pasted.
"""

from __future__ import annotations

from typing import Any

from shardwise.diagnostics.finding import Diagnosis
from shardwise.types.errors import shown

from .transitions import ALIASES, find_move, letter

# op, src letters, dst letters, message, help
_PATTERNS: tuple[tuple[str, str, str, str, tuple[str, ...]], ...] = (
    (
        "all_reduce",
        "RI",
        "*",
        "all_reduce sums over {axis}, so src must be P, got {src}: equal values would be scaled by the axis size",
        ("{x} as it is: it holds the whole value on every rank already",),
    ),
    ("all_reduce", "S?", "*", "src of all_reduce must be P, got {src}", ("all_gather({x}, {axis}, src={src}, dst=R)",)),
    (
        "all_reduce",
        "*",
        "VSP?",
        "dst of all_reduce must be R or I, got {dst}: after the sum every rank holds the same value",
        ("all_reduce({x}, {axis}, src=P, dst=R)", "reduce_scatter({x}, {axis}, src=P, dst=S(0)) to keep one piece"),
    ),
    (
        "all_gather",
        "P",
        "*",
        "src of all_gather must be V or S(i), got P: gathering pending sums does not add them up",
        ("all_reduce({x}, {axis}, src=P, dst=R)",),
    ),
    (
        "all_gather",
        "RI?",
        "*",
        "src of all_gather must be V or S(i), got {src}: every rank holds the value already",
        ("{x} as it is: it holds the whole value on every rank already",),
    ),
    (
        "all_gather",
        "*",
        "*",
        "dst of all_gather must be R or I, got {dst}: afterwards every rank holds all pieces",
        ("all_gather({x}, {axis}, src={src}, dst=R)",),
    ),
    (
        "reduce_scatter",
        "RI",
        "*",
        "reduce_scatter sums over {axis}, so src must be P, got {src}: equal values would be scaled by the axis size",
        ("convert({x}, {axis}, src={src}, dst=S(0)) to keep one piece",),
    ),
    (
        "reduce_scatter",
        "S",
        "VS",
        "src of reduce_scatter must be P, got {src}",
        ("all_to_all({x}, {axis}, src={src}, dst={dst}) to move pieces without adding them",),
    ),
    (
        "reduce_scatter",
        "S?",
        "*",
        "src of reduce_scatter must be P, got {src}",
        ("all_gather({x}, {axis}, src={src}, dst=R) to put the pieces together",),
    ),
    (
        "reduce_scatter",
        "*",
        "*",
        "dst of reduce_scatter must be V or S(i), got {dst}: each rank keeps one piece of the sum",
        ("all_reduce({x}, {axis}, src=P, dst=R) to keep the whole sum",),
    ),
    (
        "all_to_all",
        "*",
        "*",
        "src and dst of all_to_all must be V or S(i), got {src} and {dst}",
        ("all_to_all({x}, {axis}, src=S(0), dst=S(1))",),
    ),
    (
        "convert",
        "P",
        "RI",
        "convert does not communicate, and P -> {dst} needs a sum over {axis}: use all_reduce",
        ("all_reduce({x}, {axis}, src=P, dst={dst})",),
    ),
    (
        "convert",
        "P",
        "*",
        "convert does not communicate, and P -> {dst} needs a sum over {axis}: use reduce_scatter (or all_reduce)",
        ("reduce_scatter({x}, {axis}, src=P, dst={dst})",),
    ),
    (
        "convert",
        "VS",
        "RI",
        "convert {src} -> {dst} is not supported: convert does not communicate, and every rank needs all pieces",
        ("all_gather({x}, {axis}, src={src}, dst={dst})",),
    ),
    ("convert", "*", "*", "convert {src} -> {dst} is not supported", ()),
    (
        "reinterpret",
        "S",
        "RI",
        "reinterpret does not support S(i): it keeps the local bits and claims nothing about where pieces belong",
        ("all_gather({x}, {axis}, src={src}, dst={dst})",),
    ),
    (
        "reinterpret",
        "S",
        "P",
        "reinterpret does not support S(i): it keeps the local bits and claims nothing about where pieces belong",
        ("reinterpret({x}, {axis}, src=V, dst=P) if the ranks' pieces are addends",),
    ),
    (
        "reinterpret",
        "S",
        "*",
        "reinterpret does not support S(i): it keeps the local bits and claims nothing about where pieces belong",
        ("convert({x}, {axis}, src={src}, dst=V) to forget where the pieces belong",),
    ),
    (
        "reinterpret",
        "P",
        "S",
        "reinterpret does not support S(i): it keeps the local bits and claims nothing about where pieces belong",
        ("reduce_scatter({x}, {axis}, src=P, dst={dst})",),
    ),
    (
        "reinterpret",
        "*",
        "S",
        "reinterpret does not support S(i): it keeps the local bits and claims nothing about where pieces belong",
        ("convert({x}, {axis}, src={src}, dst={dst})",),
    ),
    (
        "reinterpret",
        "P",
        "RI",
        "reinterpret P -> {dst} is not supported: it is ill-defined, the ranks' addends differ",
        ("all_reduce({x}, {axis}, src=P, dst={dst})",),
    ),
    (
        "reinterpret",
        "P",
        "*",
        "reinterpret P -> {dst} is not supported: it is ill-defined, the gradient would depend on a sum never taken",
        ("reduce_scatter({x}, {axis}, src=P, dst={dst})",),
    ),
    (
        "reinterpret",
        "V",
        "RI",
        "reinterpret V -> {dst} is not supported: it cannot be asserted that the ranks hold equal values",
        ("all_gather({x}, {axis}, src=V, dst={dst})", "reinterpret_no_grad({x}, {axis}, dst={dst}) if they are equal"),
    ),
    ("reinterpret", "*", "*", "reinterpret {src} -> {dst} is not supported", ()),
    ("redistribute", "*", "*", "redistribute cannot go from {src} to {dst}", ()),
)

_EXPERT: dict[tuple[str, str, str], tuple[str, tuple[str, ...]]] = {
    ("convert", "R", "I"): (
        "keeps the value and lets one rank's gradient stand for all",
        ("keep {x} at R and convert it where it is used: convert({x}, {axis}, src=R, dst=V)",),
    ),
    ("convert", "I", "P"): (
        "keeps the value on rank 0 of {axis} and puts zeros elsewhere",
        ("convert({x}, {axis}, src=I, dst=R)",),
    ),
    ("convert", "V", "P"): (
        "stacks: it adds a dim with one slot per rank and zeros in the others' slots",
        ("reinterpret({x}, {axis}, src=V, dst=P) if the ranks' values are addends",),
    ),
    ("convert", "S", "P"): (
        "pads this rank's piece with zeros to the whole size",
        ("all_gather({x}, {axis}, src={src}, dst=R)",),
    ),
    ("reinterpret", "R", "I"): (
        "keeps the value and lets one rank's gradient stand for all",
        ("keep {x} at R and convert it where it is used: convert({x}, {axis}, src=R, dst=V)",),
    ),
    ("reinterpret", "R", "P"): (
        "multiplies the value by the size of {axis}",
        ("convert({x}, {axis}, src=R, dst=P) to keep the value",),
    ),
    ("reinterpret", "I", "R"): (
        "keeps the local bits and the value, which is what convert says plainly",
        ("convert({x}, {axis}, src=I, dst=R)",),
    ),
    ("reinterpret", "R", "V"): (
        "forgets that the ranks' values are equal",
        ("convert({x}, {axis}, src=R, dst=S(0)) to keep one piece per rank", "{x} as it is: R mixes freely with V"),
    ),
}


def refusal(
    op: str, src: Any, dst: Any, *, expert_mode: bool = False, axis: Any = "axis", x: str = "x"
) -> Diagnosis | None:
    """What to say about a call of ``op`` with these placements; None if it is admitted."""
    op = ALIASES.get(op, op)
    if isinstance(src, str) or isinstance(dst, str):
        return Diagnosis(
            "SW202",
            f"src and dst of {op} are placements and not strings, got src={src!r}, dst={dst!r}",
            help=("from shardwise import R, I, V, P, S",),
        )
    move = find_move(op, src, dst)
    words = {"op": op, "src": shown(src), "dst": shown(dst), "axis": shown(axis), "x": x}
    if move is not None:
        if expert_mode or not move.expert:
            if (move.src, move.dst) == ("S", "S") and op == "convert" and src != dst:
                return Diagnosis(
                    "SW202",
                    f"convert {src} -> {dst} would move pieces between ranks, and convert does not communicate: "
                    "use all_to_all",
                    help=(f"all_to_all({x}, {words['axis']}, src={src}, dst={dst})",),
                )
            return None
        effect, help = _EXPERT[op, move.src, move.dst]
        return Diagnosis(
            "SW203",
            f"{op} {src} -> {dst} {effect.format(**words)}; it is rarely meant and needs expert_mode=True",
            help=tuple(line.format(**words) for line in help),
        )
    further = next((one for one in (src, dst) if letter(one) not in {"", *"RIVPS"}), None)
    if further is not None:
        return Diagnosis("SW202", f"{op} is not defined for {further!r}: of pending reductions it knows the sum, P")
    from_, to = letter(src) or "?", letter(dst) or "?"
    for name, sources, destinations, message, help in _PATTERNS:
        if name == op and _matches(sources, from_) and _matches(destinations, to):
            # A remedy that would repeat what is no placement helps nobody.
            unusable = [name for name, found in (("{src}", from_), ("{dst}", to)) if found == "?"]
            lines = [line for line in help if not any(name in line for name in unusable)]
            return Diagnosis("SW202", message.format(**words), help=tuple(line.format(**words) for line in lines))
    return Diagnosis("SW202", f"{op} cannot go from {words['src']} to {words['dst']}")


def _matches(letters: str, found: str) -> bool:
    return letters == "*" or found in letters
