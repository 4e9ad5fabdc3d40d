"""Findings that later calls may take back: of pieces that are passed on in a ring, of parameters that are sent to all.

In ring attention a rank's queries meet its own keys before they meet those of the others. At that line the two are
shards of different dims over one axis; that the keys are sent on to the neighbour, before or after, tells it from a
program that has forgotten the others. What comes of it has no type, and that is listed.

A parameter that only its owner steps varies from then on; that it is broadcast, or gathered, makes it equal again.

A scan over a split sequence, or the routing of tokens to experts on other ranks, computes with this rank's piece first
and then exchanges what came of it. Such a function is local code: that it sends on by hand what was refused in it tells
it from one that takes its piece for the whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from types import CodeType

import torch

from shardwise.diagnostics.finding import Finding
from shardwise.diagnostics.source import user_codes, user_location, user_site
from shardwise.interop.autograd.gradient_origin import gradient_origin
from shardwise.interop.tensors.tagging import tag_of, type_of
from shardwise.interop.torch_compat import storage_key
from shardwise.mesh.axis import MeshAxis
from shardwise.op_rules.propagation.call_types import AxisRefusal, Outcome
from shardwise.op_rules.propagation.local import Weak
from shardwise.op_rules.propagation.operand import Bound
from shardwise.types.spec import partition_spec_get_shard
from shardwise.types.tensor_type import Ground

from ..call.arguments import Op
from ..diagnosis.reporter import refuse
from ..state.session import CheckSession

_BY_PIECES = ("SW401", "SW402", "SW405", "SW408")
"""What is said of a call that would need the other ranks' pieces."""
_COMPARING = frozenset(["eq", "ne", "ge", "gt", "le", "lt", "isclose"])
"""Operators that tell which rank has the largest element, where its own is compared with that of all."""
_LOST = "the type of what is computed with one piece of a ring after the other"
_LOST_BY_HAND = "the type of what is computed of a rank's own piece in a function that exchanges the pieces by hand"


@dataclass(frozen=True, slots=True, eq=False)
class OpenFindings:
    """Findings that stand unless memory with one of these keys is sent on along the axis; ``to_all``: to all ranks.

    ``inside``  the function in which they are, if it may exchange by hand what comes of what is refused.
    ``parts``   they are about parts of the memory, so that equal values that are written over all of it will do.
    """

    axis: MeshAxis
    keys: frozenset[int]
    findings: Sequence[Finding] = ()
    to_all: bool = False
    inside: CodeType | None = None
    parts: bool = False


def refuse_unless_passed(
    session: CheckSession,
    op: Op,
    operands: Sequence[Bound],
    values: Sequence[object],
    outcome: Outcome,
    blocked: str | None,
) -> None:
    """Report the refusals of ``outcome``, unless only the other pieces of a ring are missing."""
    ring = None if session.local else _awaited(op, outcome, values)
    if ring is not None and not session.passed_on.isdisjoint((ring.axis, key) for key in ring.keys):
        session.lose(_LOST, user_location())
        return
    count = 0 if session.collector is None else session.collector.count
    refuse(session, op.name, op.rule, operands, values, outcome, blocked=blocked)
    if ring is not None and session.collector is not None:
        site = None if session.strict else user_site()
        inside = None if site is None else site.code
        session.open_findings.append(replace(ring, findings=session.collector.added_since(count), inside=inside))


def _awaited(op: Op, outcome: Outcome, values: Iterable[object]) -> OpenFindings | None:
    """The ring that would make what is refused right; None if none would."""
    axes = {one.axis for one in outcome.refusals}
    of_pieces = (one.refusal.code in _BY_PIECES or _seeks_owner(op, one) for one in outcome.refusals)
    if len(axes) != 1 or not all(of_pieces):
        return None
    (axis,) = axes
    if not isinstance(axis, MeshAxis):
        return None
    cut = [x for x in values if isinstance(x, torch.Tensor) and partition_spec_get_shard(type_of(x).spec, axis)]
    return OpenFindings(axis, frozenset(map(storage_key, cut)))


def _seeks_owner(op: Op, refused: AxisRefusal) -> bool:
    """A rank compares the extreme of its own shard with that of all."""
    places = [given.placement for given in refused.givens if not isinstance(given.placement, Weak)]
    pending = [place for place in places if place.is_partial]
    return op.rule.op in _COMPARING and bool(pending) and all(place.is_extremum for place in pending)


def stands_unless_sent(
    session: CheckSession, axis: object, tensor: torch.Tensor, findings: Sequence[Finding], *, parts: bool = False
) -> None:
    """``findings`` are about ``tensor``, which varies along ``axis``: they stand unless all ranks get one of theirs."""
    if isinstance(axis, MeshAxis):
        keys = frozenset((storage_key(tensor),))
        session.open_findings.append(OpenFindings(axis, keys, findings, to_all=True, parts=parts))


def note_passed(session: CheckSession, axis: MeshAxis, sent: Iterable[torch.Tensor]) -> None:
    """``sent`` goes to a neighbour along ``axis``; findings that only waited for that are withdrawn."""
    keys = {storage_key(x) for x in sent}
    session.passed_on |= {(axis, key) for key in keys}
    _withdraw(session, axis, keys, to_all=False)


def note_made_equal(session: CheckSession, axis: MeshAxis, received: Iterable[torch.Tensor]) -> None:
    """All ranks of ``axis`` have the same in ``received`` from here on."""
    if session.open_findings:
        _withdraw(session, axis, {storage_key(x) for x in received}, to_all=True)


def note_overwritten(session: CheckSession, axis: MeshAxis, destination: torch.Tensor) -> None:
    """Equal values along ``axis`` are written over all of ``destination``."""
    for one in list(session.open_findings):
        if one.parts and one.axis == axis and storage_key(destination) in one.keys:
            _take_back(session, one, None)


def note_exchanged_by_hand(session: CheckSession, sent: Iterable[torch.Tensor], axis: MeshAxis | None = None) -> None:
    """The function that is running exchanges ``sent`` along ``axis``, or along axes that only running it would tell.

    What was refused in it is withdrawn if something in ``sent`` may have come of it. A gradient does not, nor does a
    single number, which is a loss that is shown.
    """
    if session.local or not session.open_findings:
        return
    made = [x for x in sent if x.numel() > 1 and gradient_origin(tag_of(x)) is None]
    codes = user_codes() if made else frozenset()
    for one in list(session.open_findings):
        if one.inside in codes and axis in (None, one.axis) and any(_nothing_is_known(x, one.axis) for x in made):
            _take_back(session, one, _LOST_BY_HAND)


def _nothing_is_known(x: torch.Tensor, axis: MeshAxis) -> bool:
    type = type_of(x)
    place = type.get(axis)
    return type.ground is Ground.UNKNOWN or (place is not None and place.is_unknown)


def _withdraw(session: CheckSession, axis: MeshAxis, keys: set[int], *, to_all: bool) -> None:
    for one in list(session.open_findings):
        if one.axis == axis and one.to_all is to_all and not one.keys.isdisjoint(keys):
            _take_back(session, one, None if to_all else _LOST)  # what is equal again has its type


def _take_back(session: CheckSession, one: OpenFindings, lost: str | None) -> None:
    session.open_findings.remove(one)
    if session.collector is not None:
        session.collector.withdraw(one.findings)
    if lost is not None:
        for finding in one.findings:
            session.lose(lost, finding.location)
