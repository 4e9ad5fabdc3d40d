"""Ranks that part ways: whether all ranks of a collective reach it in a function that only some of them run.

While a branch is checked whose predicate varies along some axes, those are on record here. A collective along another
axis is fine: all of its ranks have the same predicate.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass

import torch

from shardwise.diagnostics.source_location import SourceLocation
from shardwise.interop.calls.located_call import LocatedCall, report
from shardwise.interop.tensors.tagging import type_of
from shardwise.mesh.axis import MeshAxis
from shardwise.types.tensor_type import Ground

from ..diagnosis.collective_findings import collective_after_parting
from ..state.session import CheckSession


@dataclass(frozen=True, slots=True)
class Divergence:
    """Ranks along ``axis`` part ways: ``what`` decides at ``location``."""

    axis: MeshAxis
    what: str
    location: SourceLocation | None


def varying_axes(decides: object) -> list[MeshAxis]:
    """The axes along which a predicate differs between ranks."""
    if not isinstance(decides, torch.Tensor):
        return []
    type = type_of(decides)
    return [] if type.ground.is_constant else list(type.varying_axes)


def pending_axes(decides: object) -> list[object]:
    """The axes along which a predicate is a pending sum."""
    if not isinstance(decides, torch.Tensor):
        return []
    type = type_of(decides)
    return [] if type.ground is Ground.ZERO else list(type.partial_axes)


@contextlib.contextmanager
def diverging(session: CheckSession, op: str, decides: object, location: SourceLocation | None) -> Iterator[None]:
    """Inside the block ranks have parted ways along the axes where ``decides`` varies."""
    before = session.diverging
    session.diverging = (*before, *(Divergence(axis, op, location) for axis in varying_axes(decides)))
    try:
        yield
    finally:
        session.diverging = before


def check_arrival(session: CheckSession, op: str, x: object, axis: MeshAxis) -> None:
    """Report a collective along ``axis`` that some of its ranks may not reach."""
    for parted in session.diverging:
        if axis.isorthogonal(parted.axis):
            continue
        located = LocatedCall(op, [("x", x)])
        said = collective_after_parting(op, parted.axis, parted.what, parted.location)
        report(session, located, said, parted.axis, operands=located.shown(axis))
        return
