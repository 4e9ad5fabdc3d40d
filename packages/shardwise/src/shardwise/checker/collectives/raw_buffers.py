"""Raw collectives of programs that were written for the reference: it reads operands narrowly and keeps output buffers.

There the type of a buffer is declared before the call and compared with what arrives; elsewhere a buffer takes the type
of what is written into it.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from shardwise.interop import alias
from shardwise.interop.calls.located_call import LocatedCall, report
from shardwise.interop.tensors.tagging import type_of
from shardwise.op_rules.raw_collectives import RawCollective, Reducer
from shardwise.op_rules.transition_types import parts_of
from shardwise.types.placement import PerMeshAxisLocalSpmdType, Placement
from shardwise.types.tensor_type import Ground, TensorType

from ..diagnosis.memory_findings import buffer_declared_otherwise
from ..state.session import CheckSession
from .raw_pieces import Exchange

_ADMITS = {
    **dict.fromkeys(("all_reduce", "reduce_scatter_tensor", "reduce_scatter_single"), "P"),
    **dict.fromkeys(("all_gather", "all_gather_into_tensor", "all_gather_single", "all_to_all_single"), "V"),
}
"""What the reference lets into the collectives that it knows: addends into sums, and else what varies."""


def admitted(row: RawCollective, reducer: Reducer | None) -> tuple[str, ...]:
    """The placements that this collective takes, read as the reference does where its programs run."""
    own = row.admitted(reducer)
    summed = reducer is None or reducer.name in ("sum", "avg")
    known = _ADMITS.get(row.name) if summed and not row.functional and alias.is_installed() else None
    return own if known is None else (known,)


def check_buffers(
    session: CheckSession, exchange: Exchange, buffers: Sequence[torch.Tensor], sent: Sequence[TensorType]
) -> None:
    """Report a declared buffer that would hold another type than what arrives in it. SW120."""
    gives = PerMeshAxisLocalSpmdType(exchange.row.gives) if exchange.row.gives else None
    for buffer in buffers:
        declared = type_of(buffer)
        if gives is None or not _is_declared(declared):
            continue
        along = parts_of(exchange.axis, declared)
        for axis in declared.axes:
            arrives: Placement | None = gives if axis in along else sent[0].get(axis) if sent else None
            place = declared.get(axis)
            if arrives is None or holds(place, arrives, exact=axis in along):
                continue
            located = LocatedCall(exchange.name, [(exchange.row.received, buffer)])
            report(
                session, located, buffer_declared_otherwise(exchange.name, located.name(0), axis, place, arrives), axis
            )


def as_declared(buffer: torch.Tensor, arrived: TensorType | None) -> TensorType | None:
    """``arrived`` with what a declared buffer says of itself, where that is true of what arrives."""
    declared = type_of(buffer)
    if arrived is None or not alias.is_installed() or not _is_declared(declared):
        return arrived
    kept = {
        axis: declared.get(axis)
        for axis in declared.axes
        if axis in arrived and holds(declared.get(axis), arrived.get(axis), exact=False)
    }
    placements = {**{axis: arrived.get(axis) for axis in arrived.axes}, **kept}
    return TensorType.of(placements, arrived.spec, arrived.ground, arrived.uneven)


def holds(declared: Placement, arrives: Placement, *, exact: bool) -> bool:
    """True if a buffer of placement ``declared`` says nothing wrong of what arrives; ``exact``: and forgets nothing."""
    if declared is arrives or declared.is_unknown or arrives.is_unknown:
        return True
    return arrives.is_equal and (declared.is_equal or (declared.is_varying and not exact))


def _is_declared(type: TensorType) -> bool:
    return bool(type.axes) and type.ground is Ground.ABSENT
