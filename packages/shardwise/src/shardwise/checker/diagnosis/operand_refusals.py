"""What is said of refused operand types, per code: SW1xx, and SW620 of random numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch

from shardwise.diagnostics.finding import Diagnosis
from shardwise.diagnostics.fix import Fix
from shardwise.diagnostics.syntax import source_of
from shardwise.interop.autograd.gradient_origin import gradient_origin
from shardwise.interop.calls.located_call import axis_text, provenance
from shardwise.interop.fixes.annotations import said_also, said_of
from shardwise.interop.fixes.collective_calls import meant_axis, over_axis_where_made
from shardwise.interop.fixes.losses import counted_by_all, invariant_instead
from shardwise.interop.fixes.norms import COUNTED_ONCE, clipped_by_ours
from shardwise.interop.fixes.pending_sums import added_first, scattered
from shardwise.interop.fixes.random_draws import drawn_alike, drawn_from, seeded_alike, seeded_by_rank
from shardwise.interop.fixes.scales import rescaled
from shardwise.interop.running import session as sessions
from shardwise.interop.tensors.tagging import sizes_of, tag_of, type_of
from shardwise.mesh.axis import MeshAxis
from shardwise.mesh.normalize import axis_argument
from shardwise.op_rules.propagation.operand import Bound
from shardwise.types.placement import I, P, R, V
from shardwise.types.tensor_type import TensorType

from .refused_call import RefusedCall
from .scale_texts import scale_repair

_PUTTING_IN = ("setitem", "fill", "masked_fill", "index_fill", "masked_scatter", "where", "index_copy", "scatter")
"""Operators that replace elements, where others add to all of them."""

_BEFORE = {"norm": "it is the root of a sum: the sum of the ranks' squares is taken over the ranks, and then its root"}
"""For a kind that is pending, what can be done before it is finished."""
_DIVISIONS = ("div", "true_divide")


def invariant_mixed(refused: RefusedCall) -> Diagnosis:
    name, mixed = refused.first, ", ".join(map(refused.placed, refused.others))
    uses = f"mixes {name}, invariant over {refused.axis}, with {mixed}"
    said = Diagnosis(
        "SW101",
        f"{refused.op} {uses if mixed else f'copies {name}, invariant over {refused.axis}, into the shards of a dim'}",
        (
            f"the gradient of {name} would be a different addend on each of the {refused.size} ranks, "
            "not the invariant one",
        ),
    )
    return _invariant_others(refused, said) or _added_others(refused, said)


def _added_others(refused: RefusedCall, said: Diagnosis) -> Diagnosis:
    """Numbers that each rank has of its own, as a penalty on its piece of a weight, may be addends of one."""
    axis = refused.at.axis
    if axis is None or len(refused.others) != 1:
        return said
    value = refused.located.values[refused.others[0]]
    if not isinstance(value, torch.Tensor) or sizes_of(value) != () or not type_of(value).is_varying(axis):
        return said
    fixes = added_first(refused.located, refused.others[0], axis)
    return replace(said, help=tuple(fix.help for fix in fixes), fixes=fixes)


def _invariant_others(refused: RefusedCall, said: Diagnosis) -> Diagnosis | None:
    """What is replicate because a collective says so could be invariant as well; None if that is not why."""
    axis = refused.at.axis
    if axis is None or len(refused.others) != 1:
        return None
    position = refused.others[0]
    type = refused.operands[position].type
    if not isinstance(type, TensorType) or type.get(axis) is not R:
        return None
    way = f"dst=I in the collective that makes {refused.name(position)}, if every rank computes the same from here on"
    fixes = invariant_instead(refused.located.values[position], axis, way)
    return replace(said, help=(way,), fixes=fixes) if fixes else None


def over_other_axis(refused: RefusedCall, said: Diagnosis) -> Diagnosis | None:
    """With what is equal along the axis because it was reduced there, and is a pending sum along another one.

    Then no other way is safe: what the collective over the wrong axis has added up stays so.
    """
    if said.code != "SW101":
        return None
    position, axis = refused.culprits[0], refused.at.axis
    type = refused.operands[position].type
    meant = meant_axis(type, axis, lambda one: one is P) if isinstance(type, TensorType) and axis is not None else None
    if meant is None:
        return None
    origin = provenance(refused.located.values[position], axis)
    way = (
        f"reduce {refused.first} over {axis_text(meant)}, along which it is a partial sum, and not over {refused.axis}"
    )
    fixes = over_axis_where_made(origin, meant, way)
    return replace(said, help=(way,), fixes=fixes) if fixes else None


def missing_annotation(refused: RefusedCall) -> Diagnosis:
    other = refused.name(refused.others[0]) if refused.others else "the other operands"
    message = f"{refused.first} has no type and meets {other}, which has one, in {refused.op}"
    axes = _axes_of([refused.operands[position] for position in refused.others])
    places = {axis: _place_beside(refused, axis) for axis in axes}
    way = _annotate(refused, places)
    span = refused.located.places[refused.culprits[0]] if len(refused.culprits) == 1 else None
    streams = drawn_from(refused.located.location, [one for one in places if places[one] != "V"])
    fixes = (*streams, *said_of(span, places, way))
    return Diagnosis("SW102", message, help=(*(fix.help for fix in streams), way), fixes=fixes)


def missing_axis(refused: RefusedCall) -> Diagnosis:
    message = f"the type of {refused.first} says nothing about {refused.axis}, which is in play in {refused.op}"
    if refused.at.axis is None:
        return Diagnosis("SW103", message)
    place = _place_beside(refused, refused.at.axis)
    way = _annotate(refused, {refused.at.axis: place})
    origin = provenance(refused.located.values[refused.culprits[0]])
    return Diagnosis("SW103", message, help=(way,), fixes=said_also(origin, refused.at.axis, place, way))


def partial_meets_varying(refused: RefusedCall) -> Diagnosis:
    other = refused.name(refused.others[0])
    kind = _kind(refused)
    if kind is not None:
        return Diagnosis(
            "SW110",
            f"{refused.op} combines {refused.first}, a pending {kind} over {refused.axis}, with {other}, "
            "which varies there",
            (f"the {kind} over {refused.axis} is still to be taken, and each rank would use its own",),
            *_discharge(refused, kind),
        )
    said = Diagnosis(
        "SW110",
        f"{refused.op} combines {refused.first}, a partial sum over {refused.axis}, with {other}, which varies there",
        (f"the sum over {refused.axis} is still pending, and a term that differs per rank does not commute with it",),
    )
    counted = _counted_globally(refused, said)
    if counted.help or refused.at.axis is None:
        return counted
    fixes = scattered(refused.located, refused.culprits[0], refused.at.axis)
    return replace(said, help=tuple(fix.help for fix in fixes), fixes=fixes)


def _counted_globally(refused: RefusedCall, said: Diagnosis) -> Diagnosis:
    """With the sum of the counts that the ranks divide a pending sum by, where that is what the call does."""
    position, axis = refused.others[0], refused.at.axis
    value = refused.located.values[position]
    if axis is None or refused.op not in _DIVISIONS or position == 0 or not isinstance(value, torch.Tensor):
        return said
    exponent = type_of(value).exponent(axis)
    ways, fixes = counted_by_all(*refused.located.names[position], refused.op, axis, exponent)
    return replace(said, help=ways, fixes=fixes)


def product_of_partials(refused: RefusedCall) -> Diagnosis:
    first, second = map(refused.name, refused.culprits[:2])
    return Diagnosis(
        "SW111",
        f"{refused.op} multiplies two partial sums over {refused.axis}, {first} and {second}",
        ("(a0 + a1) * (b0 + b1) is not a0*b0 + a1*b1",),
    )


def _kind(refused: RefusedCall) -> str | None:
    """What is pending of the first operand at fault, "max", "min" or "norm", if it is no sum."""
    type = refused.operands[refused.culprits[0]].type
    place = type.get(refused.at.axis) if isinstance(type, TensorType) else None
    return place.reduction.name if place is not None and place.is_partial and place is not P else None


def _discharge(refused: RefusedCall, kind: str) -> tuple[tuple[str, ...], tuple[Fix, ...]]:
    """Help and edits that finish a pending maximum, minimum or norm."""
    name = refused.first
    if kind == "norm":
        if gradient_origin(tag_of(refused.located.values[refused.culprits[0]])) is not None:
            return (COUNTED_ONCE,), clipped_by_ours(refused.located.location, COUNTED_ONCE)
        return (f"all_reduce({name}.square(), {refused.argument}, src=P, dst=R).sqrt() before {refused.op}",), ()
    way = (
        f'all_reduce({name}, {refused.argument}, src=P("{kind}"), dst=R) before {refused.op}, '
        f"or dist.all_reduce({name}, op=dist.ReduceOp.{kind.upper()}, group=...)"
    )
    return (way,), ()


def partial_in_nonlinear(refused: RefusedCall) -> Diagnosis:
    kind = _kind(refused)
    if kind is not None:
        return Diagnosis(
            "SW112",
            f"{refused.op} needs complete values, but {refused.first} is still a pending {kind} over {refused.axis}",
            (_BEFORE.get(kind, f"only functions that never decrease can be taken before the {kind}"),),
            *_discharge(refused, kind),
        )
    return Diagnosis(
        "SW112",
        f"{refused.op} needs complete values, but {refused.first} is still a partial sum over {refused.axis}",
        () if refused.reason == "nonlinear" else (refused.reason,),
    )


def term_added_per_rank(refused: RefusedCall) -> Diagnosis:
    partial = refused.operands[refused.others[0]].type
    pending = isinstance(partial, TensorType) and partial.is_partial(refused.at.axis)
    told = " and ".join(dict.fromkeys(map(refused.name, refused.others)))
    does = f"puts {refused.first} in" if refused.op.rstrip("_") in _PUTTING_IN else f"adds {refused.first}"
    several = len(set(map(refused.name, refused.others))) > 1
    are = "are partial sums" if several else "is a partial sum"
    why = f"{told} {are}" if pending else f"the product of {told} is a pending sum"
    return Diagnosis(
        "SW113",
        f"{refused.op} {does} once per rank: {why} over {refused.axis}, {refused.first} is not",
        (f"after the sum over {refused.axis} it would have been counted {refused.size} times",),
    )


def partial_in_argument(refused: RefusedCall) -> Diagnosis:
    at = refused.culprits[0]
    where, is_number = refused.operands[at].label, not isinstance(refused.located.values[at], torch.Tensor)
    declared = f"Scalar(..., {{{refused.argument}: R}})"
    way = f"add {refused.first} up over {refused.argument} first, and declare the sum: {declared}"
    return Diagnosis(
        "SW114",
        f"{refused.op} is not linear in its argument {where!r}, but {refused.first} is still a partial sum over "
        f"{refused.axis}",
        (f"the results with each rank's addend of {refused.first} do not add up to that with the sum",),
        (way,) if is_number else (),
    )


def unsynchronised_random(refused: RefusedCall) -> Diagnosis:
    where, axis = refused.located.location, refused.argument
    ways: tuple[str, ...] = (
        f"with shardwise.rng(seed, synchronised={axis}): a stream that draws alike there",
        f"with synchronised_rng({axis}): if the generators are seeded alike there",
    )
    session = sessions.this_thread()
    apart = None if session is None else session.seeded_apart
    seeding = None if apart and refused.at.axis not in apart else seeded_by_rank()
    if seeding is None:
        fixes = drawn_alike(where, axis, ways[1:])
    else:
        line, call = seeding[0].line, source_of(seeding[1], seeding[0].file)
        stream = f"stream = shardwise.rng(seed, synchronised={axis}) once"
        fixes = seeded_alike(where, axis, seeding)
        ways = (
            f"{stream}, and with stream: around {refused.op}; {call} in line {line} seeds each rank apart",
            *(fix.help for fix in fixes),
        )
    return Diagnosis(
        "SW121",
        f"{refused.op} draws different random numbers on each rank of {refused.axis} for {refused.first}, "
        "which must be equal there",
        help=() if refused.repairs else ways,
        fixes=() if refused.repairs else fixes,
    )


def incompatible_meshes(refused: RefusedCall) -> Diagnosis:
    return Diagnosis("SW133", f"{refused.op}: {refused.reason}")


def repeated_random(refused: RefusedCall) -> Diagnosis:
    return Diagnosis(
        "SW620",
        f"{refused.op} draws the same random numbers on every rank of {refused.axis} for {refused.first}, "
        "which varies there",
        ("the stream in use is synchronised there, so every rank's piece gets the same noise",),
        (f"with shardwise.rng(seed, distinct={refused.argument}): for what differs per rank",),
    )


def scales_differ(refused: RefusedCall) -> Diagnosis:
    factors = _off_the_scale(refused, refused.culprits), _off_the_scale(refused, refused.others)
    first, second = map(refused.scaled, factors)
    return Diagnosis(
        "SW150",
        f"{refused.op} combines values of different scale over {refused.axis}: {first}, {second}",
        (f"on another number of ranks the one grows against the other; here by {refused.size}",),
        *_rescale(refused, factors),
    )


def _off_the_scale(refused: RefusedCall, product: Sequence[int]) -> int:
    """The factor of a product that is not on the scale of one device; the first if all are."""
    axis = refused.at.axis
    types = {at: refused.operands[at].type for at in product}
    return next((at for at, type in types.items() if isinstance(type, TensorType) and type.exponent(axis)), product[0])


def scale_in_nonlinear(refused: RefusedCall) -> Diagnosis:
    return Diagnosis(
        "SW151",
        f"{refused.op} is not homogeneous, and {refused.scaled(refused.culprits[0])} over {refused.axis}",
        (f"{refused.op} of n times a value is no multiple of {refused.op} of the value",),
        *_rescale(refused, refused.culprits[:1]),
    )


def _rescale(refused: RefusedCall, positions: Sequence[int]) -> tuple[tuple[str, ...], tuple[Fix, ...]]:
    """Help and edits for operands that are on another scale than one device's."""
    axis = refused.at.axis
    ways: list[str] = []
    fixes: list[Fix] = []
    for position in positions:
        type = refused.operands[position].type
        exponent = type.exponent(axis) if isinstance(type, TensorType) else 0
        if axis is not None and exponent:
            way = f"{refused.name(position)}: {scale_repair(axis, exponent)}"
            made = rescaled(refused.located, position, axis, exponent, way)
            ways += [fix.help for fix in made] or [way]
            fixes += made
    return tuple(ways), tuple(fixes)


def _place_beside(refused: RefusedCall, axis: MeshAxis) -> str:
    """What an operand may be along an axis beside the others: V if one of them varies, I if all of them are I, else R.

    What varies is a piece or not, and a claim of V claims nothing.
    """
    types = [refused.operands[position].type for position in refused.others]
    places = {type.get(axis) for type in types if isinstance(type, TensorType)} - {None}
    if V in places:
        return "V"
    return "I" if places == {I} else "R"


def _annotate(refused: RefusedCall, places: Mapping[MeshAxis, str]) -> str:
    types = ", ".join(f"{axis_argument(axis)}: {place}" for axis, place in places.items())
    names = list(map(refused.name, refused.culprits))
    what, where = (names[0], "it is") if len(names) == 1 else (f"[{', '.join(names)}]", "they are")
    return f"assert_type({what}, {{{types}}}) where {where} made (or what it is of R, I, V, P, S(i))"


def _axes_of(operands: Sequence[Bound]) -> list[MeshAxis]:
    """The axes that typed operands mention, in the order of the mesh."""
    axes = {axis for operand in operands if isinstance(operand.type, TensorType) for axis in operand.type.axes}
    return sorted(axes, key=lambda axis: axis.sort_key)
