"""Of what type is what a raw collective brings? That of what was sent, with the row's result along the call's axis."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from shardwise.diagnostics.source import user_location
from shardwise.interop.tensors.tagging import type_of
from shardwise.mesh.axis import MeshAxis
from shardwise.mesh.entry import current_entry
from shardwise.mesh.regions import cut_along, put_together
from shardwise.op_rules.transition_types import parts_of
from shardwise.types.placement import UNKNOWN, P, PerMeshAxisLocalSpmdType, Placement
from shardwise.types.spec import PartitionSpec, partition_spec_get_shard
from shardwise.types.tensor_type import UNTYPED, Exponent, Ground, TensorType

from ..state.session import CheckSession
from .raw_buffers import as_declared
from .raw_pieces import Exchange, received_spec, uneven_after


def result_type(
    session: CheckSession, tensor: torch.Tensor, base: TensorType | None, exchange: Exchange, sent_ndim: int
) -> TensorType | None:
    """The type of a received tensor, None if it stays what it was; a buffer of its own may have declared it.

    ``base``  the type of what was sent, None if nothing was.
    ``sent_ndim``  how many dims that has.
    """
    arrived = _arrived(session, tensor, base, exchange, sent_ndim)
    return as_declared(tensor, arrived) if exchange.row.sent != exchange.row.received else arrived


def _arrived(
    session: CheckSession, tensor: torch.Tensor, base: TensorType | None, exchange: Exchange, sent_ndim: int
) -> TensorType | None:
    """As ``result_type``, whatever a buffer was declared to hold."""
    row, axis = exchange.row, exchange.axis
    sent_unknown = base is not None and base.ground is Ground.UNKNOWN
    if base is None or sent_unknown:
        base, sent_ndim = type_of(tensor), tensor.ndim
    if not base.axes and base.ground is Ground.ABSENT and type_of(tensor).ground.is_constant:
        return base  # what nobody has typed has been written over the zeros
    if base.ground is Ground.UNKNOWN or (not base.axes and base.ground is Ground.ABSENT):
        return None
    if base.axes and not base.local and (exchange.reducer is None or row.sent != row.received or row.gives != "R"):
        return None  # nothing is known along any axis: the result of a rejected call; a reduction makes it equal
    if base.ground is Ground.ZERO and row.sent == row.received:
        return None  # whatever is done to zeros that all ranks have, they stay zeros
    base = cut_along(base, axis)
    axes = parts_of(axis, base) or (axis,)
    mesh = current_entry()
    if any(one not in axes and not one.isorthogonal(axis) for one in base.axes):
        session.lose(f"the type of what {exchange.name} leaves over ranks that are no part of an axis", user_location())
        return base
    outside = mesh is not None and axis not in mesh.axes
    if not row.sent and base.ground is not Ground.ABSENT and (outside or not session.strict):
        return UNTYPED  # a message has its sender's type, which the program may give it
    # Ranks that send their addends to each other receive such: whoever puts them together knows of which sum.
    addends = any(base.get(one) is P for one in axes)
    of_sums = not row.sent and (axis in session.addends_sent or any(base.is_partial(one) for one in axes))
    if row.sent and addends and exchange.reducer is None and row.gives == "R" and base.ground is Ground.ABSENT:
        session.lose(f"the type of the addends of a gradient that {exchange.name} hands to all ranks", user_location())
        of_sums = True
    place: Placement = UNKNOWN if of_sums else PerMeshAxisLocalSpmdType(row.gives)
    handed_back = row.sent == row.received and bool(row.sent)
    after = {one: base.get(one) if handed_back and base.is_equal(one) else place for one in axes}
    placements = {**{a: base.get(a) for a in base.axes}, **after}
    if sent_unknown and mesh is not None and mesh.axes.issuperset(axes):
        placements = {**dict.fromkeys(mesh.axes, UNKNOWN), **placements}
    if session.local or (base.spec is not None and len(base.spec) != sent_ndim):
        arrived = TensorType.of(placements, scale=_scale_after(exchange, base, axes))
    else:
        spec = received_spec(exchange, base, tensor.ndim, sent_ndim)
        scale = _scale_after(exchange, base, axes)
        unsaid = [one for one in axes if _is_moved(exchange, placements[one], one, spec)]
        if unsaid:
            session.lose(f"which part of the whole {exchange.name} leaves on each rank", user_location())
            placements |= dict.fromkeys(unsaid, UNKNOWN)
        arrived = TensorType.of(placements, spec, uneven=uneven_after(exchange, base), scale=scale)
    return arrived if mesh is None else put_together(arrived, mesh.ordered_axes)


def _is_moved(exchange: Exchange, place: Placement, axis: MeshAxis, spec: PartitionSpec | None) -> bool:
    """True if an exchange leaves pieces that only whoever puts them together knows the place of."""
    mesh = current_entry()
    message = not exchange.row.sent
    exchanged = "all_to_all" in (exchange.row.name, exchange.row.pieces)
    if not (message or exchanged) or (mesh is not None and axis in mesh.local_axes):
        return False
    return place.is_varying and partition_spec_get_shard(spec, axis) is None


def _scale_after(exchange: Exchange, before: TensorType, axes: Sequence[MeshAxis]) -> dict[MeshAxis, Exponent]:
    """The scale of the result: a sum counts equal values once per rank, an average divides."""
    if not exchange.row.sent:
        return dict.fromkeys(before.axes)
    if before.ground in (Ground.CONSTANT, Ground.EMPTY):
        return dict.fromkeys(axes)  # what has been written into constants or new memory may be anything
    reducer, scale = exchange.reducer, dict(before.scale_under(dict.fromkeys(axes, UNKNOWN)))
    if reducer is None:
        # What is exchanged piece by piece is a list of whatever the pieces are.
        return {**scale, **dict.fromkeys(axes)} if exchange.row.gives == "V" else scale
    for axis in axes:
        exponent = before.exponent(axis)
        if reducer.name in ("sum", "avg"):
            summed = before.is_equal(axis)
            exponent = None if before.is_varying(axis) else exponent
            scale[axis] = None if exponent is None else exponent + int(summed) - int(reducer.divides)
        elif not reducer.known or (exponent != 0 and reducer.name not in ("max", "min")):
            scale[axis] = None
    return scale
