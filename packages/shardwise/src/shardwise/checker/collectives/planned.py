"""``redistribute`` between whole types: the operand must be what the plan begins with, and the result is what it ends
with. The steps between are the planner's, and are not judged one by one.
"""

from __future__ import annotations

import torch

from shardwise.diagnostics.finding import Diagnosis
from shardwise.diagnostics.source import user_site
from shardwise.interop.calls.located_call import LocatedCall, axis_text, placement_text, report
from shardwise.interop.calls.tracing import is_tracing
from shardwise.interop.tensors.tagging import Origin, Tag, set_tag, tag_of, type_of
from shardwise.interop.torch_call import Arguments, Keywords, TorchFunction
from shardwise.interop.torch_compat import takes_gradient
from shardwise.mesh.axis import MeshAxis
from shardwise.mesh.entry import current_entry
from shardwise.op_rules.transition_types import resolved
from shardwise.planner.plans import Plan
from shardwise.types.placement import UNKNOWN, P, Placement, V
from shardwise.types.spec import partition_spec_get_shard
from shardwise.types.tensor_type import Exponent, Ground, TensorType

from ..diagnosis.collective_findings import no_type_on_axis
from ..state.call_log import log_result, typed_shape
from ..state.session import CheckSession
from .divergence import check_arrival

_CALLED = "redistribute"


def redistribution(session: CheckSession, func: TorchFunction, args: Arguments, kwargs: Keywords) -> object:
    """The handler of a planned move."""
    x, plan, wanted = args[0], args[1], args[2]
    assert isinstance(x, torch.Tensor), "the call has looked"
    assert isinstance(plan, Plan), "the call makes it"
    assert isinstance(wanted, TensorType), "the call makes it"
    shown = [typed_shape(x)] if is_tracing() else []
    before = type_of(x)
    if session.diverging:
        for axis in {axis for step in plan.collectives for axis in step.axes if isinstance(axis, MeshAxis)}:
            check_arrival(session, _CALLED, x, axis)
    after = _after(session, x, before, plan, wanted)
    tag = tag_of(x)
    result = func(*args, **kwargs)
    session.checked += 1
    if isinstance(result, torch.Tensor) and not (result is x and before is after):
        set_tag(result, Tag(after, _origins(tag, before, after)))
    if is_tracing():
        log_result(_CALLED, shown, result)
    return result


def _after(session: CheckSession, x: torch.Tensor, before: TensorType, plan: Plan, wanted: TensorType) -> TensorType:
    """The result's type; what is wrong with the operand is reported."""
    if before.ground is Ground.UNKNOWN:
        return before
    moved = {axis: wanted.get(axis) for axis in wanted.axes}
    if before.ground.is_constant and not before.axes:
        return _typed(session, moved, wanted, plan.dst, {})
    said: TensorType = before
    kept: dict[MeshAxis, Placement] = {axis: before.get(axis) for axis in before.axes}
    for axis in plan.src.axes:
        said, parts = resolved(axis, before, current_entry())
        for part in parts:
            kept.pop(part, None)
        if not parts:
            if session.strict:
                _missing(session, x, axis, plan.src)
            continue
        for part in parts:
            if not _admits(session, x, before, said, part, axis, plan.src):
                _wrong(session, x, axis, said.get(part), said, plan.src)
    kept = {axis: place for axis, place in kept.items() if axis not in moved}
    return _typed(session, kept | moved, wanted, plan.dst, dict(before.scale))


def _typed(
    session: CheckSession,
    placements: dict[MeshAxis, Placement],
    wanted: TensorType,
    end: TensorType,
    scale: dict[MeshAxis, Exponent],
) -> TensorType:
    spec = None if session.local else wanted.spec
    made = TensorType.of(placements, spec, uneven=frozenset() if spec is None else end.uneven)
    known = {axis: exponent for axis, exponent in scale.items() if axis in made and axis not in wanted}
    return made.rescaled({**known, **{axis: wanted.exponent(axis) for axis in wanted.axes}})


def _admits(
    session: CheckSession,
    x: torch.Tensor,
    before: TensorType,
    said: TensorType,
    part: MeshAxis,
    axis: MeshAxis,
    src: TensorType,
) -> bool:
    """True if what ``x`` is along ``part`` may be read as what the plan takes it for along ``axis``."""
    place, want = said.get(part), src.get(axis)
    if place is want:
        cut, known = partition_spec_get_shard(src.spec, axis), partition_spec_get_shard(said.spec, part)
        return session.local or place is not V or known is None or cut == known
    if place.is_unknown or (before.ground.is_constant and (want.is_equal or before.ground is Ground.ZERO)):
        return True
    if place.is_equal and want.is_equal:
        return not (takes_gradient(x) and torch.is_grad_enabled())
    return place is V and want is P and partition_spec_get_shard(said.spec, part) is None


def _wrong(
    session: CheckSession, x: torch.Tensor, axis: MeshAxis, place: Placement, said: TensorType, src: TensorType
) -> None:
    located = LocatedCall(_CALLED, [("x", x)])
    cut, known = partition_spec_get_shard(src.spec, axis), partition_spec_get_shard(said.spec, axis)
    is_, wanted = (
        (placement_text(place) if known is None else repr(known)),
        (placement_text(src.get(axis)) if cut is None else repr(cut)),
    )
    report(
        session,
        located,
        Diagnosis(
            "SW201",
            f"src_spec of {_CALLED} says that {located.name(0)} is {wanted} over {axis_text(axis)}, but it is {is_}",
            ("the steps are planned from what src_spec says",),
            (f"src_spec with {is_.partition(' ')[0]} over {axis_text(axis)}",),
        ),
        axis,
    )


def _missing(session: CheckSession, x: torch.Tensor, axis: MeshAxis, src: TensorType) -> None:
    located = LocatedCall(_CALLED, [("x", x)])
    name = located.name(0)
    way = f"assert_type({name}, src_spec) where {name} is made"
    report(session, located, no_type_on_axis(_CALLED, name, axis, way, ()), axis)


def _origins(tag: Tag | None, before: TensorType, after: TensorType) -> tuple[Origin | None, ...]:
    site = user_site(2)
    origins: list[Origin | None] = []
    for axis, place in zip(after.axes, after.placements, strict=True):
        if axis in before and before.get(axis) is place and tag is not None:
            origins.append(tag.origin_of(axis))
        else:
            origins.append(
                Origin(site, f"{'unknown' if place is UNKNOWN else place.word} over {axis!r} since this move")
            )
    return tuple(origins)
