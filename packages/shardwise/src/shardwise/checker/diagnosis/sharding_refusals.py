"""What is said of refused shardings, per code: SW4xx, with the cheapest repairs that the planner finds."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from shardwise.diagnostics.finding import Diagnosis
from shardwise.diagnostics.fix import Fix
from shardwise.interop.autograd.gradient_origin import gradient_origin
from shardwise.interop.calls.located_call import axis_text
from shardwise.interop.fixes.norms import COUNTED_ONCE, clipped_by_ours
from shardwise.interop.running import session as sessions
from shardwise.interop.tensors.tagging import tag_of
from shardwise.mesh.axis import MeshAxis
from shardwise.mesh.normalize import axis_argument
from shardwise.mesh.program import mesh_at_hand
from shardwise.op_rules.propagation.operand import sharded_dim
from shardwise.op_rules.propagation.placer import whole_shape
from shardwise.planner.cost import Interconnect
from shardwise.planner.links import DEFAULT
from shardwise.planner.repairs import sharding_repairs
from shardwise.types.placement import I, R
from shardwise.types.tensor_type import TensorType

from ..state.session import CheckSession
from .refused_call import RefusedCall, sharded_along

_MOST_REPAIRS = 2
_SHAPES_KEPT = ("softmax", "log_softmax", "softmin", "normalize", "cumsum", "cumprod", "logcumsumexp", "flip", "roll")
"""Operators that need every element along a dim, and give as many."""


def shardings_disagree(refused: RefusedCall) -> Diagnosis:
    if not refused.others and len(refused.culprits) == 1:
        return not_mapped(refused.op, refused.first, refused.at.axis, refused.cut(refused.culprits[0]))
    dims = {sharded_dim(refused.operands[at].type, refused.at.axis) for at in refused.culprits}
    which = "dims that do not go together" if len(dims) == 1 else "different dims"
    message = f"{refused.op} gets operands sharded on {which} over {refused.axis}: {refused.listed}"
    return _with_moves(refused, Diagnosis("SW401", message))


def not_mapped(op: str, name: str, axis: object, state: str) -> Diagnosis:
    """SW401 of what meets the slices of a mapped dim that is sharded over ``axis``. ``state``: how it is there."""
    return Diagnosis(
        "SW401",
        f"{op} works on slices of a dim that is sharded over {axis_text(axis)}, and {name} is {state} there",
        ("each rank maps its own slices, so the slices must correspond and everything else must be whole",),
    )


def not_stacked(op: str, axis: object, place: object) -> Diagnosis:
    """SW405 of a result that is no piece of the stack along a mapped dim that is sharded over ``axis``."""
    return Diagnosis(
        "SW405",
        f"{op} gives {place!r} over {axis_text(axis)}, along which the mapped dim is sharded",
        ("a stack of one rank's results is a piece of the result, so they vary",),
    )


def whole_meets_shard(refused: RefusedCall) -> Diagnosis:
    partners = " and ".join(map(refused.cut, refused.others))
    fact = f"{refused.first} is not sharded over {refused.axis}, {partners} is" if partners else refused.reason
    message = f"{refused.op} needs {refused.first} sharded over {refused.axis} like the others"
    said = _with_moves(refused, Diagnosis("SW402", message, (fact,)))
    return said if said.help else replace(said, help=_made_whole(refused))


def _made_whole(refused: RefusedCall) -> tuple[str, ...]:
    """What to do where the whole of a dim has as many elements as a piece of the others: it is made too short."""
    position, axis = refused.culprits[0], refused.at.axis
    operand = refused.operands[position]
    place = operand.type.get(axis) if isinstance(operand.type, TensorType) else None
    call = None if refused.call is None else refused.call.along(axis)
    labelling = None if call is None or refused.rule.labels is None else refused.rule.labels(call)
    if labelling is None or place not in (R, I) or not refused.others:
        return ()
    tensors = [at for at, one in enumerate(refused.operands) if one.shape is not None]
    cut = sharded_dim(refused.operands[refused.others[0]].type, axis)
    dims, partner = (labelling.operands[tensors.index(at)] for at in (position, refused.others[0]))
    if cut is None or partner[cut] not in dims:
        return ()
    piece = f"convert({refused.first}, {refused.argument}, src={place!r}, dst=S({dims.index(partner[cut])}))"
    return (f"make {refused.first} for all ranks' elements, and {piece} for the piece",)


def mean_over_shard(refused: RefusedCall) -> Diagnosis:
    ways: tuple[str, ...] = ()
    if refused.rule.op == "mean":
        ways = (
            f"shardwise.mean({refused.first}, ..., out_partial_axes={refused.argument}), "
            "which counts the elements of all ranks",
        )
    elif "reduction" in refused.rule.parameters:
        ways = (f'{refused.op}(..., reduction="sum") / n, with n the count of all ranks',)
    return _with_moves(refused, Diagnosis("SW403", _cannot(refused), (refused.reason,), ways))


def extremum_over_shard(refused: RefusedCall) -> Diagnosis:
    return _with_moves(refused, Diagnosis("SW404", _cannot(refused), (refused.reason,)))


def dim_needed_whole(refused: RefusedCall) -> Diagnosis:
    if "norm" in refused.op and gradient_origin(tag_of(refused.located.values[refused.culprits[0]])) is not None:
        fixes = clipped_by_ours(refused.located.location, COUNTED_ONCE)
        return Diagnosis("SW405", _cannot(refused), (refused.reason,), (COUNTED_ONCE,), fixes)
    said = _with_moves(refused, Diagnosis("SW405", _cannot(refused), (refused.reason,)))
    return _piece_of_whole(refused, said) if refused.op in _SHAPES_KEPT else said


def _piece_of_whole(refused: RefusedCall, said: Diagnosis) -> Diagnosis:
    """``said`` with one repair more: where the program goes on with pieces, that of the result for all elements."""
    position = refused.culprits[0]
    operand, axis = refused.operands[position], refused.at.axis
    dim = sharded_dim(operand.type, axis)
    if dim is None or (isinstance(operand.type, TensorType) and axis in operand.type.uneven):
        return said
    fixes = refused.around(position, dim)
    return replace(said, help=(*said.help, *(fix.help for fix in fixes)), fixes=(*fixes, *said.fixes))


def position_over_shard(refused: RefusedCall) -> Diagnosis:
    return _with_moves(refused, Diagnosis("SW406", _cannot(refused), (refused.reason,)))


def unasked_partial(refused: RefusedCall) -> Diagnosis:
    said = Diagnosis(
        "SW407",
        f"{refused.op} contracts {refused.listed}, which is sharded over {refused.axis}, and leaves a pending sum",
        ('with partials="explicit" the caller names the axes of a pending sum: out_partial_axes',),
    )
    return _with_moves(refused, said)


def varying_without_spec(refused: RefusedCall) -> Diagnosis:
    if refused.operands[refused.culprits[0]].shape is None:
        return Diagnosis(
            "SW408",
            f"{refused.op} takes {refused.first}, a number that differs over {refused.axis}, into a global computation",
            ("the same program on one device has no such number: state the result's type at a local_map boundary",),
        )
    return Diagnosis(
        "SW408",
        f"{refused.first} varies over {refused.axis}, but nothing says which of its dims is sharded, in {refused.op}",
        help=(
            f"assert_type({refused.first}, {{{refused.argument}: S(i)}}) where it is made, "
            "with i the dim of which each rank has a piece",
        ),
    )


def axis_order_conflict(refused: RefusedCall) -> Diagnosis:
    message = f"{refused.op} cannot tell in which order mesh axes shard one dim"
    return _with_moves(refused, Diagnosis("SW409", message, (refused.reason,)))


def no_global_rule(refused: RefusedCall) -> Diagnosis:
    said = Diagnosis(
        "SW411",
        f"what {refused.op} does to the sharded dim of {refused.listed} over {refused.axis} is not said by its op rule",
        ("in a local region nobody asks: with local(): around it, and assert_type says what comes out",),
    )
    return _with_moves(refused, said)


def uneven_shards(refused: RefusedCall) -> Diagnosis:
    dim = sharded_dim(refused.operands[refused.culprits[0]].type, refused.at.axis)
    said = Diagnosis(
        "SW417",
        f"{refused.op} needs shards of one length, but those of {refused.listed} over {refused.axis} may differ",
        (refused.reason,),
        (assert_even(refused.first, refused.at.axis, dim),),
    )
    return _with_moves(refused, said)


def whole_size_for_shard(refused: RefusedCall) -> Diagnosis:
    operand = refused.operands[refused.culprits[0]]
    assert isinstance(operand.type, TensorType), "only what is sharded has another shape on one rank"
    here = operand.shape or ()
    shown, whole = (" x ".join(map(str, each)) for each in (here, whole_shape(operand.type, here)))
    return Diagnosis(
        "SW418",
        f"{refused.op} is given sizes of the whole {whole} of {refused.first}, of which one rank has {shown}",
        (refused.reason,),
        (f"-1 in place of the size of a dim that is cut, or {refused.first}.shape[i], which is this rank's",),
    )


def assert_even(name: str, axis: Any, dim: int | None) -> str:
    """The help for shards whose lengths may differ: the claim that they do not."""
    return f"assert_type({name}, {{{axis_argument(axis)}: S({dim})}}, even=True) if every rank has as many elements"


def _cannot(refused: RefusedCall) -> str:
    return f"{refused.op} cannot work on {refused.listed}, which is sharded over {refused.axis}"


def _with_moves(refused: RefusedCall, said: Diagnosis) -> Diagnosis:
    """``said`` with the cheapest repairs as calls that can be pasted, each with what it moves."""
    axis, call = refused.at.axis, refused.call
    if axis is None or call is None:
        return said
    tensors = [at for at, operand in enumerate(refused.operands) if operand.shape is not None]
    sharded = [sharded_along(refused.operands[at], axis) for at in tensors]
    lines: list[str] = []
    fixes: list[Fix] = []
    for plan in sharding_repairs(refused.rule, call, sharded, axis.size(), link=_link(axis))[:_MOST_REPAIRS]:
        calls = []
        for step in plan.steps:
            name, uneven = refused.name(tensors[step.position]), sharded[step.position].uneven
            sizes = ", split_sizes=[...]" if uneven else ""
            calls.append(f"{step.op}({name}, {refused.argument}, src={step.src!r}, dst={step.dst!r}{sizes})")
        moved = plan.cost.elements
        cost = f"moves {moved} elements per rank" if moved else "no communication in forward"
        lines.append(f"{' and '.join(calls)} before {refused.op} ({cost})")
        if not any(sharded[step.position].uneven for step in plan.steps):
            fixes += refused.fix(lines[-1], [(tensors[step.position], step) for step in plan.steps])
    return replace(said, help=(*said.help, *lines), fixes=(*said.fixes, *fixes))


def _link(axis: MeshAxis) -> Interconnect:
    """What the configuration says of the axis by its name."""
    session, entry = sessions.this_thread(), mesh_at_hand(search=False)
    if not isinstance(session, CheckSession) or entry is None:
        return DEFAULT
    return session.links.on(entry.all_names).at(axis)
