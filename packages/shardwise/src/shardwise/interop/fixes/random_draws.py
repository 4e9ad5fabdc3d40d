"""Random numbers that must be equal along an axis: the block in which they are, and the stream that gives them."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from shardwise.diagnostics.fix import Fix, Rewrite, Within
from shardwise.diagnostics.source import is_internal, user_frame
from shardwise.diagnostics.source_location import SourceLocation
from shardwise.diagnostics.syntax import location_in, nodes_in
from shardwise.mesh.axis import MeshAxis
from shardwise.mesh.normalize import axis_argument

from .expressions import callee, keyword_of, node_text_is, text_of

_SEEDING = ("manual_seed", "manual_seed_all")


def seeded_by_rank() -> tuple[SourceLocation, ast.Call] | None:
    """The call, in a file whose functions are running, that seeds generators by a rank's number, and where it stands.

    Then they are not alike.
    """
    files: set[str] = set()
    frame = user_frame(2)
    while frame is not None:
        if not is_internal(frame.f_code):
            files.add(frame.f_code.co_filename)
        frame = frame.f_back
    calls = ((file, node) for file in files for node in nodes_in(file) if isinstance(node, ast.Call))
    for file, call in calls:
        here = SourceLocation(file, call.lineno)
        if callee(here, call) in _SEEDING and any(_says_rank(here, one) for one in call.args):
            return location_in(here, call), call
    return None


def seeded_alike(
    location: SourceLocation | None, axis: str, seeding: tuple[SourceLocation, ast.Call]
) -> tuple[Fix, ...]:
    """The rank's number left out of the seed, and the draw in a block that says that the generators are then alike.

    None where the seed is more than a sum in which the number is a term, as ``seed + 100 * rank`` is. What else is
    drawn with this seed is alike then as well, so it is for the author to say.
    """
    where, call = seeding
    kept = _without_rank(where, call.args[0]) if len(call.args) == 1 and not call.keywords else None
    if location is None or kept is None:
        return ()
    made = f"{text_of(where, call.func)}({kept})"
    block = f"synchronised_rng({axis})"
    help = f"{made} in line {where.line}, and with {block}: around the draw, if pieces drawn later may be alike"
    edits = Rewrite(location_in(where, call.args[0]), kept), Within(location, f"spmd.{block}")
    return (Fix(help, edits, choice=True),)


def _without_rank(location: SourceLocation, seed: ast.expr) -> str | None:
    """What is left of a seed without the terms that are made of a rank's number; None if there is no other term."""
    if not _says_rank(location, seed):
        return text_of(location, seed)
    if not isinstance(seed, ast.BinOp) or not isinstance(seed.op, ast.Add):
        return None
    left, right = _without_rank(location, seed.left), _without_rank(location, seed.right)
    return left if right is None else right if left is None else f"{left} + {right}"


def _says_rank(location: SourceLocation, node: ast.expr) -> bool:
    return "rank" in text_of(location, node).lower()


def drawn_alike(location: SourceLocation | None, axis: str, helps: Sequence[str]) -> tuple[Fix, ...]:
    """The statement of the draw in a block that says that the generators are seeded alike along the axis."""
    if location is None:
        return ()
    edit = Within(location, f"spmd.synchronised_rng({axis})")
    return tuple(Fix(help, (edit,), choice=True) for help in helps)


def drawn_from(location: SourceLocation | None, axes: Sequence[MeshAxis]) -> tuple[Fix, ...]:
    """The only stream that the file makes for numbers that differ along all of ``axes`` gives equal ones there.

    And then along the other axes that it names as well.
    """
    if location is None or not axes:
        return ()
    nodes = [node for node in nodes_in(location.file) if isinstance(node, ast.Call)]
    calls = [(node, said) for node in nodes if (said := _distinct(location, node)) is not None]
    if len(calls) != 1:
        return ()
    call, said = calls[0]
    entries = list(said.elts) if isinstance(said, ast.Tuple | ast.List) else [said]
    wanted = [axis_argument(axis) for axis in axes]
    if any(not any(node_text_is(location, entry, one) for entry in entries) for one in wanted):
        return ()
    others = [
        text_of(location, one) for one in entries if not any(node_text_is(location, one, name) for name in wanted)
    ]
    arguments = [text_of(location, one) for one in call.args]
    fixes = []
    for equal, distinct in dict.fromkeys([(tuple(wanted), tuple(others)), ((*wanted, *others), ())]):
        options = [f"synchronised={_listed(equal)}", *([f"distinct={_listed(distinct)}"] if distinct else [])]
        text = f"{text_of(location, call.func)}({', '.join([*arguments, *options])})"
        fixes.append(
            Fix(
                f"{text} for the stream that it is drawn from",
                (Rewrite(location_in(location, call), text),),
                choice=True,
            )
        )
    return tuple(fixes)


def _distinct(location: SourceLocation, node: ast.Call) -> ast.expr | None:
    """The axes along which a call of ``rng`` makes numbers differ, if that is all that it is told of axes."""
    if callee(location, node) != "rng":
        return None
    return keyword_of(node, "distinct") if len(node.keywords) == 1 else None


def _listed(axes: Sequence[str]) -> str:
    return axes[0] if len(axes) == 1 else f"({', '.join(axes)})"
