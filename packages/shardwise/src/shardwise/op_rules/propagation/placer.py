"""The sharding of one call's results over all axes: the sharded rule applied to it, and the specs put together.

Local types have been judged before: what comes here is V along the axis, and the question is which dim of the result is
sharded. The specs of several axes are then put together, in the order in which the operands have them.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from shardwise.mesh.axis import MeshAxis
from shardwise.types.placement import UNKNOWN, P, PerMeshAxisLocalSpmdType, Placement, V
from shardwise.types.spec import PartitionSpec, entry_axes, make_entry, spec_of
from shardwise.types.tensor_type import Ground, TensorType

from ..schema import OpRule
from .dim_labels import Call, Labelling
from .global_sizes import SIZED, Fit, fit
from .local import Refusal, Weak
from .operand import Bound, givens_along, sharded_dim
from .sharded import Sharded, not_pending, sharded_rule

_POSITIONS = ("int64", "int32")
_MOVING = frozenset({"add", "sub", "rsub", "lt", "le", "gt", "ge", "eq", "ne"})
_COPIES = ("contiguous", "clone", "detach")


@dataclass(frozen=True, slots=True)
class Scope:
    """How far global typing reaches.

    ``local_axes``  mesh axes that keep local semantics.
    ``partials``    a contraction over a sharded dim may leave a pending sum without being asked.
    ``mapped``      those of them over which a dim is sharded that ``vmap`` takes apart.
    ``claimed``     axes along which this call asks for one.
    ``own``         axes along which the call cuts by the number of this rank, with the dim of the result that is its
                    part of the whole; None: it is none.
    ``observed``    the program writes no types, and does not say what is for its log alone.
    """

    local_axes: frozenset[MeshAxis] = frozenset()
    partials: bool = True
    claimed: frozenset[MeshAxis] = frozenset()
    mapped: frozenset[MeshAxis] = frozenset()
    own: Mapping[MeshAxis, int | None] = field(default_factory=dict)
    observed: bool = False


class Placer:
    """Places the results of one call, axis by axis."""

    def __init__(
        self, rule: OpRule, call: Call, operands: Sequence[Bound], types: Sequence[TensorType | Weak], scope: Scope
    ) -> None:
        self.rule = rule
        self.call = call
        self.scope = scope
        self.operands = operands
        self.types = types
        self.tensors = [at for at, operand in enumerate(operands) if operand.shape is not None]
        self.dims: dict[MeshAxis, tuple[int | None, ...]] = {}
        """For every axis that shards a result: the dim of each result."""
        self.uneven: set[MeshAxis] = set()
        """Those of them whose shards may differ in length."""
        self.summed: set[MeshAxis] = set()
        """The axes over which a dim is sharded that is contracted."""
        self.averaged: set[MeshAxis] = set()
        """Those of them over which it is averaged."""
        self.own: list[MeshAxis] = []
        """The axes over which the result is sharded because this rank has cut its part out."""

    @functools.cached_property
    def labelling(self) -> Labelling | None:
        """The call's labels, made when the first sharded axis asks for them."""
        return None if self.rule.labels is None else self.rule.labels(self.call)

    def labelling_along(self, axis: MeshAxis) -> Labelling | None:
        """The labels along an axis: which dim a count of this rank's counts may show in its numbers only."""
        if self.rule.labels is None or axis not in self.call.shares:
            return self.labelling
        return self.rule.labels(self.call.along(axis))

    def place(self, axis: MeshAxis, places: tuple[Placement | Weak, ...]) -> tuple[Placement | Weak, ...] | Refusal:
        """Every result's placement along ``axis``, on which some are V by the local rule, which says ``places``."""
        sharded = [self._sharded(at, axis) for at in self.tensors]
        unspecified = [
            at for at, one in zip(self.tensors, sharded, strict=True) if one.placement is V and one.dim is None
        ]
        if unspecified and len(self.tensors) == 1 and self.rule.op in _COPIES:
            return places  # whatever looks at it is refused
        if unspecified:
            return Refusal("SW408", "varying without a sharded dim", tuple(unspecified))
        if self.fit is not Fit.SHARD:
            return self._misfit()
        labelling = self.labelling_along(axis)
        if labelling is None:
            return Refusal("SW411", "only a local rule", tuple(at for at in self.tensors if self._is_cut(at, axis)))
        whole = all(one.dim is None for one in sharded)
        if whole and (own := self.scope.own.get(axis)) is not None:
            self.dims[axis] = (own,) * len(labelling.results)
            self.own.append(axis)
            return places
        if whole or axis in self.scope.own:
            numbers = [at for at, type in enumerate(self.types) if at not in self.tensors and _varies(type, axis)]
            if self._moves_positions(numbers):
                return (UNKNOWN,)
            return Refusal("SW408", "a number that differs per rank", tuple(numbers))
        placed = sharded_rule(labelling, sharded, partials=self._may_leave_sum(axis))
        if isinstance(placed, Refusal):
            return Refusal(
                placed.code,
                placed.reason,
                tuple(self.tensors[at] for at in placed.culprits),
                tuple(self.tensors[at] for at in placed.others),
            )
        if placed.placement is not V:
            self.summed.add(axis)
            if placed.averaged:
                self.averaged.add(axis)
            refusal = None if placed.total else self._pending(axis, sharded)
            if placed.placement.is_extremum:
                return self._extrema(placed.placement)
            return refusal or tuple(placed.placement if place is V else place for place in places)
        self.dims[axis] = placed.dims
        if placed.uneven:
            self.uneven.add(axis)
        if len(places) == 1:
            return places
        # A result that follows from whole operands only is cut all the same where it gets the shape of the others.
        return tuple(place if dim is None else V for place, dim in zip(places, placed.dims, strict=True))

    def _moves_positions(self, numbers: Sequence[int]) -> bool:
        """True if whole numbers that all ranks have are moved to where this rank's part begins, or compared with it.

        These are positions then, and what is looked up by them next is for the local rules to judge.
        """
        whole = all(self.operands[at].dtype.removeprefix("torch.") in _POSITIONS for at in self.tensors)
        return whole and self.rule.op in _MOVING and all(isinstance(self.operands[at].number, int) for at in numbers)

    def _may_leave_sum(self, axis: MeshAxis) -> bool:
        return self.scope.partials or axis in self.scope.claimed

    def joins(self, axis: MeshAxis) -> bool:
        """True if a dim that ``axis`` shards is contracted, and the sum over it is added to those that are pending."""
        sharded = [self._sharded(at, axis) for at in self.tensors]
        cut = [one.dim for one in sharded if one.placement is V]
        known = bool(cut) and None not in cut
        labelling = self.labelling_along(axis)
        if axis in self.scope.local_axes or axis in self.scope.mapped or not known or labelling is None:
            return False
        placed = sharded_rule(labelling, sharded, partials=self._may_leave_sum(axis))
        if isinstance(placed, Refusal) or placed.placement is not P or placed.total:
            return False
        return self.fit is Fit.SHARD and self._pending(axis, sharded) is None

    def _extrema(self, place: PerMeshAxisLocalSpmdType) -> tuple[Placement | Weak, ...]:
        """What an extreme over a sharded dim leaves; positions beside it are those in this rank's shard."""
        if self.rule.op == "aminmax":
            return place, place.opposite
        along_dim = self.call.get("dim", self.call.get("other")) is not None
        return (place, V) if self.rule.op in ("max", "min") and along_dim else (place,)

    @functools.cached_property
    def fit(self) -> Fit:
        """What the sizes in the call fit."""
        if not self.tensors or self.rule.op not in SIZED:
            return Fit.SHARD
        first = self.tensors[0]
        type, shape = self.types[first], self.operands[first].shape or ()
        return fit(self.rule.op, self.call, whole_shape(type, shape)) if isinstance(type, TensorType) else Fit.SHARD

    def _misfit(self) -> tuple[Placement | Weak, ...] | Refusal:
        """Sizes of the whole are refused once; what fits nothing is for torch to say."""
        if self.fit is Fit.WHOLE:
            self.fit = Fit.NEITHER
            return Refusal("SW418", "sizes in a call are one rank's", (self.tensors[0],))
        return (UNKNOWN,)

    def _pending(self, axis: MeshAxis, sharded: Sequence[Sharded]) -> Refusal | None:
        """A contraction over a sharded dim is pending in every term that has the dim; no other term may be added."""
        cut = {at for at, one in zip(self.tensors, sharded, strict=True) if one.dim is not None}
        givens, _ = givens_along(axis, self.operands, self.types)  # of all operands, or nobody would ask
        return not_pending(self.rule, givens, cut, self._cut_alike(axis, sharded))

    def _cut_alike(self, axis: MeshAxis, sharded: Sequence[Sharded]) -> set[int]:
        """Operands of one value everywhere that have the sharded dim: a shard of ones is ones."""
        labelling = self.labelling_along(axis)
        assert labelling is not None, "a placed call has labels"
        rows = list(zip(self.tensors, sharded, labelling.operands, strict=True))
        label = next(row[one.dim] for _, one, row in rows if one.dim is not None)
        return {at for at, one, row in rows if one.uniform and label in row}

    def _sharded(self, at: int, axis: MeshAxis) -> Sharded:
        type = self.types[at]
        if isinstance(type, Weak):
            original = self.operands[at].type
            uniform = isinstance(original, TensorType) and original.ground in (Ground.ZERO, Ground.UNIFORM)
            return Sharded(None, uniform=uniform)
        others = (dim for dim, entry in enumerate(type.spec or ()) if any(one != axis for one in entry_axes(entry)))
        return Sharded(type.get(axis), sharded_dim(type, axis), uneven=axis in type.uneven, elsewhere=frozenset(others))

    def _is_cut(self, at: int, axis: MeshAxis) -> bool:
        return sharded_dim(self.types[at], axis) is not None

    def specs(self) -> list[PartitionSpec | None] | Refusal:
        """One spec per result, with the axes of one dim in the order that the operands have them in."""
        if (len(self.summed) < 2 and not self.dims) or self.labelling is None:
            return []
        if crossed := self._crossed(self.labelling):
            return Refusal("SW409", "one rank has different parts of the dim that is contracted", crossed)
        if not self.dims:
            return []
        made: list[PartitionSpec | None] = []
        for number, labels in enumerate(self.labelling.results):
            entries: list[Any] = []
            for dim in range(len(labels)):
                axes = [axis for axis, dims in self.dims.items() if dims[number] == dim]
                ordered = self._in_order(axes)
                if isinstance(ordered, Refusal):
                    return ordered
                entries.append(make_entry(ordered))
            made.append(spec_of(entries))
        return made

    def _crossed(self, labelling: Labelling) -> tuple[int, ...]:
        """Operands in which a contracted dim is sharded over the same axes in different orders."""
        orders: dict[str, dict[tuple[MeshAxis, ...], int]] = {}
        for at, labels in zip(self.tensors, labelling.operands, strict=True):
            type = self.types[at]
            for label, entry in zip(labels, (type.spec or ()) if isinstance(type, TensorType) else (), strict=False):
                found = tuple(axis for axis in entry_axes(entry) if axis in self.summed)
                if label is not None and len(found) > 1:
                    orders.setdefault(label, {}).setdefault(found, at)
        return next((tuple(one.values()) for one in orders.values() if len(one) > 1), ())

    def _in_order(self, axes: Sequence[MeshAxis]) -> list[MeshAxis] | Refusal:
        if len(axes) < 2 or set(axes) <= set(self.own):
            return sorted(axes, key=lambda axis: axis.sort_key)
        orders: dict[tuple[MeshAxis, ...], int] = {}
        for at in self.tensors:
            type = self.types[at]
            for entry in (type.spec or ()) if isinstance(type, TensorType) else ():
                found = tuple(axis for axis in entry_axes(entry) if axis in axes)
                if len(found) > 1:
                    orders.setdefault(found, at)
        whole = [order for order in orders if len(order) == len(axes)]
        if len(whole) == 1 and all(_agrees(order, whole[0]) for order in orders):
            return list(whole[0])
        at_fault = orders.values() or [at for at in self.tensors if any(self._is_cut(at, axis) for axis in axes)]
        return Refusal("SW409", "axes shard one dim in no agreed order", tuple(dict.fromkeys(at_fault)))


def _varies(type: TensorType | Weak, axis: MeshAxis) -> bool:
    return isinstance(type, TensorType) and type.is_varying(axis)


def whole_shape(type: TensorType, shape: Sequence[int]) -> tuple[int, ...]:
    """The shape of the whole of which a tensor of this type and local ``shape`` is an even shard."""
    cuts: Sequence[Any] = type.spec if type.spec is not None else (None,) * len(shape)
    return tuple(
        extent * math.prod(axis.size() for axis in entry_axes(entry)) for extent, entry in zip(shape, cuts, strict=True)
    )


def _agrees(part: Sequence[MeshAxis], whole: Sequence[MeshAxis]) -> bool:
    return [axis for axis in whole if axis in part] == list(part)


def result_type(base: TensorType, spec: PartitionSpec | None, uneven: Collection[MeshAxis] = ()) -> TensorType:
    """``base`` with the spec; an axis that shards some other result only is V without a spec there.

    ``uneven``  axes whose shards may differ in length.
    """
    made = base if spec is None else base.with_spec(spec)
    return made.with_uneven(uneven) if uneven else made
