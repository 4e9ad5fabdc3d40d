"""What a partial claim says of its operands, ``src``, checked against their types.

A claim may say what its operands are along the axis: one placement, or one per operand. S(i) is compared with the
sharding where that is known, which is everywhere in global mode, and in local mode right after it was said.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from shardwise.diagnostics.errors import SpmdValueError
from shardwise.interop.calls.located_call import LocatedCall, axis_text, placement_text, report
from shardwise.mesh.axis import MeshAxis
from shardwise.mesh.normalize import axis_argument, normalize_axis
from shardwise.op_rules.partial_claim import PartialClaim
from shardwise.op_rules.propagation.operand import Bound, sharded_dim
from shardwise.types.placement import UNKNOWN, P, PerMeshAxisSpmdType, Placement, Shard, V, to_local_type
from shardwise.types.tensor_type import TensorType

from ..diagnosis.collective_findings import wrong_shard_dim, wrong_source
from ..state.session import CheckSession


def check_sources(
    session: CheckSession, kind: str, claims: Sequence[PartialClaim], bound: Sequence[Bound], values: Sequence[object]
) -> frozenset[MeshAxis]:
    """The axes of claims whose ``src`` is wrong, which has been reported.

    Errors: SW905 for a tuple that does not have one ``src`` per operand.
    """
    wrong = set()
    for claim in claims:
        axis = normalize_axis(claim.axis)
        if claim.src is None or axis.size() == 1:
            continue
        lies = [lie for at, said in _said(kind, claim, bound, axis) if (lie := _lie(bound[at], at, said, axis))]
        if lies:
            wrong.add(axis)
            _report(session, kind, axis, lies[0], bound, values)
    return frozenset(wrong)


def _said(
    kind: str, claim: PartialClaim, bound: Sequence[Bound], axis: MeshAxis
) -> Iterator[tuple[int, PerMeshAxisSpmdType]]:
    """Which operand is said to be what. A single placement is of every operand that is sharded, where it can be."""
    if isinstance(claim.src, tuple):
        if len(claim.src) != len(bound):
            raise SpmdValueError(
                f"{kind} takes one src or one per operand, got {len(claim.src)} for {len(bound)} operands", code="SW905"
            )
        yield from enumerate(claim.src)
        return
    tensors = [at for at, operand in enumerate(bound) if operand.shape is not None]
    # The dim contracted may have another number in each operand, and S(i) is that of one of them.
    if isinstance(claim.src, Shard) and any(_may_be(bound[at], claim.src, axis) for at in tensors):
        return
    yield from ((at, claim.src) for at in tensors[:1])


def _may_be(operand: Bound, said: Shard, axis: MeshAxis) -> bool:
    """True if nothing is known that keeps the operand from being sharded as ``said``."""
    if not isinstance(operand.type, TensorType) or operand.type.get(axis) not in (V, UNKNOWN, None):
        return False
    known, ndim = sharded_dim(operand.type, axis), len(operand.shape or ())
    return known is None or known in (said.dim, said.dim + ndim)


class _Lie:
    """What is said of the operand at ``position``, and what it is."""

    def __init__(self, position: int, said: PerMeshAxisSpmdType, found: Placement | Shard) -> None:
        self.position, self.said, self.found = position, said, found


def _lie(operand: Bound, at: int, said: PerMeshAxisSpmdType, axis: MeshAxis) -> _Lie | None:
    if not isinstance(operand.type, TensorType) or operand.type.ground.is_constant:
        return None
    place = operand.type.get(axis)
    if place in (None, UNKNOWN):
        return None
    if place is not to_local_type(said):
        # Global types may know already that a sum is pending, and who says V means to make it so.
        return None if (place, said) == (P, V) else _Lie(at, said, place)
    known = sharded_dim(operand.type, axis)
    if isinstance(said, Shard) and known is not None and not _may_be(operand, said, axis):
        return _Lie(at, said, Shard(known))
    return None


def _report(
    session: CheckSession, kind: str, axis: MeshAxis, lie: _Lie, bound: Sequence[Bound], values: Sequence[object]
) -> None:
    located = LocatedCall(kind, [(operand.label, value) for operand, value in zip(bound, values, strict=True)])
    name = located.name(lie.position)
    if isinstance(lie.found, Shard) and isinstance(lie.said, Shard):
        way = f"src={lie.found!r} for {axis_argument(axis)} says what {name} is"
        said = wrong_shard_dim(kind, name, axis, lie.said.dim, lie.found.dim, way)
    else:
        said = wrong_source(kind, name, placement_text(to_local_type(lie.said)), axis_text(axis), lie.found)
    report(session, located, said, axis, operands=located.shown(axis))
