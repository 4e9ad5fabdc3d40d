"""What is said of memory that would hold another type, and of positions that a rank counts in its own part of a tensor,
per code: SW120, SW406, and SW201 of what is looked up by the positions of all.
"""

from __future__ import annotations

from collections.abc import Sequence

from shardwise.diagnostics.finding import Diagnosis
from shardwise.diagnostics.fix import Fix
from shardwise.interop.autograd.parameter_names import listed
from shardwise.interop.calls.located_call import axis_text, placement_text
from shardwise.mesh.axis import MeshAxis
from shardwise.types.placement import Placement


def anew(op: str, new: object) -> str:
    """The remedy of whoever means the other type."""
    return f"make a new tensor, without {op}, if it is meant to be {new!r} from here on"


def retyped_in_place(
    op: str, name: str, old: object, new: object, axis: object, fixes: Sequence[Fix], *, in_autograd: bool
) -> Diagnosis:
    """SW120. ``in_autograd``: what is written to takes part in it, and the result varies."""
    remedy = anew(op, new)
    return Diagnosis(
        "SW120",
        f"in-place {op} would turn {name} from {old!r} into {new!r} over {axis_text(axis)}",
        ("it takes part in autograd, so even R to V would change what its gradient means",) if in_autograd else (),
        tuple(dict.fromkeys((*(fix.help for fix in fixes), remedy))),
        tuple(fixes),
    )


def parts_never_gathered(op: str, part: str, names: Sequence[str], axis: MeshAxis) -> Diagnosis:
    """SW120 of a rank's own part of memory that is equal on all ranks of ``axis``; ``names`` are the tensors in it."""
    what = f"{listed(names)}, which {'is' if len(names) == 1 else 'are'} equal over {axis_text(axis)}"
    return Diagnosis(
        "SW120",
        f"in-place {op} writes {part}, this rank's own part of the memory of {what}, and the parts are never gathered",
        (f"each of the {axis.size()} ranks keeps what it had in the parts of the others",),
        ("gather all parts into that memory after the step: dist.all_gather_into_tensor(memory, part, group=...)",),
    )


def buffer_declared_otherwise(op: str, name: str, axis: MeshAxis, declared: Placement, arrives: Placement) -> Diagnosis:
    """SW120 of a buffer that a collective writes into."""
    return Diagnosis(
        "SW120",
        f"{op} writes values that are {placement_text(arrives)} over {axis_text(axis)} into {name}, which is declared "
        f"{placement_text(declared)} there",
        (),
        (f"declare {name} {arrives!r} over {axis!r}, or leave it undeclared: it takes the type of what arrives",),
    )


def own_positions_combined(op: str, name: str, axis: MeshAxis) -> Diagnosis:
    """SW406."""
    return Diagnosis(
        "SW406",
        f"{op} combines positions in {name} that each rank of {axis_text(axis)} counts from the start of its own shard",
        ("position 0 is another element on every rank",),
        (f"add where the rank's shard begins to {name}, before {op}: its rank times the length of a shard",),
    )


def own_rows_summed(op: str, name: str, axis: MeshAxis) -> Diagnosis:
    """SW201 of rows that every rank has looked up in its own part by the positions of all."""
    along = axis_text(axis)
    return Diagnosis(
        "SW201",
        f"{op} adds up what every rank of {along} has looked up in its own part for the positions of all",
        (
            "a position lies in the part of one rank, and what the others have looked up for it is some row of theirs",
            f"nothing that differs between the ranks of {along} has set {name} to zero there",
        ),
        (f"set {name} to zero where the position lies outside of the rank's part, before {op}",),
    )
