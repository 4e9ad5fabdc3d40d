"""Is one move cheaper than two that follow each other? The planner is asked for the way from the first to the last."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from shardwise.mesh.axis import MeshAxis
from shardwise.planner.links import Links
from shardwise.planner.plans import Plan
from shardwise.planner.route import even_shape, plan
from shardwise.types.placement import PerMeshAxisSpmdType, Shard, to_local_type
from shardwise.types.spec import make_entry, spec_of
from shardwise.types.tensor_type import TensorType

from .moves_in_a_row import TypedMove


@dataclass(frozen=True, slots=True)
class CheaperWay:
    """What two moves of one tensor do, done by ``way``; they need ``bytes_now``."""

    first: TypedMove
    then: TypedMove
    way: Plan
    bytes_now: int

    @property
    def transitions(self) -> tuple[str, ...]:
        """What both do together, along every axis."""
        first, then = self.first, self.then
        if first.axis is then.axis:
            return (f"{first.src} -> {then.dst} over {first.axis!r}",)
        return tuple(f"{one.src} -> {one.dst} over {one.axis!r}" for one in (first, then))


def cheaper_ways(pairs: Iterable[tuple[TypedMove, TypedMove]], links: Links) -> Iterator[CheaperWay]:
    """Of the pairs that have one."""
    for first, then in pairs:
        types = _types(first, then)
        if types is None:
            continue
        src, mid, dst = types
        shape = even_shape(first.shape, src.spec)
        now = plan(shape, first.dtype, src, mid, links=links), plan(shape, first.dtype, mid, dst, links=links)
        way = plan(shape, first.dtype, src, dst, links=links)
        if way.time < sum(one.time for one in now):
            yield CheaperWay(first, then, way, sum(one.bytes for one in now))


def _types(first: TypedMove, then: TypedMove) -> tuple[TensorType, TensorType, TensorType] | None:
    """The whole types before, between and after; None if they cannot be told of one axis each."""
    if first.axis is then.axis:
        places = [{first.axis: place} for place in (first.src, first.dst, then.dst)]
        if first.dst != then.src:
            return None
    elif first.axis.isorthogonal(then.axis):
        places = [
            {first.axis: one, then.axis: other}
            for one, other in ((first.src, then.src), (first.dst, then.src), (first.dst, then.dst))
        ]
    else:
        return None
    src, mid, dst = (_type(one, len(first.shape)) for one in places)
    return None if src is None or mid is None or dst is None else (src, mid, dst)


def _type(places: dict[MeshAxis, PerMeshAxisSpmdType], ndim: int) -> TensorType | None:
    dims = [place.dim for place in places.values() if isinstance(place, Shard)]
    if len(set(dims)) < len(dims):
        return None  # which of them is outermost nobody has said
    entries = ([axis for axis, place in places.items() if place == Shard(dim)] for dim in range(ndim))
    local = {axis: to_local_type(place) for axis, place in places.items()}
    return TensorType.of(local, spec_of(map(make_entry, entries)))
