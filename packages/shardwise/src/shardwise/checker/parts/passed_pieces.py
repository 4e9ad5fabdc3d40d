"""Findings that later calls may take back: of pieces that are passed on in a ring, of parameters that are sent to all.

In ring attention a rank's queries meet its own keys before they meet those of the others. At that line the two are
shards of different dims over one axis; that the keys are sent on to the neighbour, before or after, tells it from a
program that has forgotten the others. What comes of it has no type, and that is listed.

A parameter that only its owner steps varies from then on; that it is broadcast, or gathered, makes it equal again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import torch

from shardwise.diagnostics.finding import Finding
from shardwise.diagnostics.source import user_location
from shardwise.interop.tensors.tagging import type_of
from shardwise.interop.torch_compat import storage_key
from shardwise.mesh.axis import MeshAxis
from shardwise.op_rules.propagation.call_types import Outcome
from shardwise.op_rules.propagation.operand import Bound
from shardwise.types.spec import partition_spec_get_shard

from ..call.arguments import Op
from ..diagnosis.reporter import refuse
from ..state.session import CheckSession

_BY_PIECES = ("SW401", "SW402", "SW405", "SW408")
"""What is said of a call that would need the other ranks' pieces."""
_LOST = "the type of what is computed with one piece of a ring after the other"


@dataclass(frozen=True, slots=True, eq=False)
class OpenFindings:
    """Findings that stand unless memory with one of these keys is sent on along the axis; ``to_all``: to all ranks."""

    axis: MeshAxis
    keys: frozenset[int]
    findings: Sequence[Finding] = ()
    to_all: bool = False


def refuse_unless_passed(
    session: CheckSession,
    op: Op,
    operands: Sequence[Bound],
    values: Sequence[object],
    outcome: Outcome,
    blocked: str | None,
) -> None:
    """Report the refusals of ``outcome``, unless only the other pieces of a ring are missing."""
    ring = None if session.local else _awaited(outcome, values)
    if ring is not None and not session.passed_on.isdisjoint((ring.axis, key) for key in ring.keys):
        session.lose(_LOST, user_location())
        return
    count = 0 if session.collector is None else session.collector.count
    refuse(session, op.name, op.rule, operands, values, outcome, blocked=blocked)
    if ring is not None and session.collector is not None:
        session.open_findings.append(replace(ring, findings=session.collector.added_since(count)))


def _awaited(outcome: Outcome, values: Iterable[object]) -> OpenFindings | None:
    """The ring that would make what is refused right; None if none would."""
    axes = {one.axis for one in outcome.refusals}
    if len(axes) != 1 or not all(one.refusal.code in _BY_PIECES for one in outcome.refusals):
        return None
    (axis,) = axes
    if not isinstance(axis, MeshAxis):
        return None
    cut = [x for x in values if isinstance(x, torch.Tensor) and partition_spec_get_shard(type_of(x).spec, axis)]
    return OpenFindings(axis, frozenset(map(storage_key, cut)))


def stands_unless_sent(session: CheckSession, axis: object, tensor: torch.Tensor, findings: Sequence[Finding]) -> None:
    """``findings`` are about ``tensor``, which varies along ``axis``: they stand unless all ranks get one of theirs."""
    if isinstance(axis, MeshAxis):
        keys = frozenset((storage_key(tensor),))
        session.open_findings.append(OpenFindings(axis, keys, findings, to_all=True))


def note_passed(session: CheckSession, axis: MeshAxis, sent: Iterable[torch.Tensor]) -> None:
    """``sent`` goes to a neighbour along ``axis``; findings that only waited for that are withdrawn."""
    keys = {storage_key(x) for x in sent}
    session.passed_on |= {(axis, key) for key in keys}
    _withdraw(session, axis, keys, to_all=False)


def note_made_equal(session: CheckSession, axis: MeshAxis, received: Iterable[torch.Tensor]) -> None:
    """All ranks of ``axis`` have the same in ``received`` from here on."""
    if session.open_findings:
        _withdraw(session, axis, {storage_key(x) for x in received}, to_all=True)


def _withdraw(session: CheckSession, axis: MeshAxis, keys: set[int], *, to_all: bool) -> None:
    for one in list(session.open_findings):
        if one.axis == axis and one.to_all is to_all and not one.keys.isdisjoint(keys):
            session.open_findings.remove(one)
            if session.collector is not None:
                session.collector.withdraw(one.findings)
            for finding in () if to_all else one.findings:  # what is equal again has its type
                session.lose(_LOST, finding.location)
