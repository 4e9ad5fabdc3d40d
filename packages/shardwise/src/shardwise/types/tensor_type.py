"""A tensor's type over all mesh axes: one immutable, interned value.

Interning makes two equal types one object, so the checker compares and hashes types by identity. Axes are opaque
here: any hashable object with a ``sort_key``; ``mesh.axis.MeshAxis`` is the one that exists.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Iterable, Mapping
from fractions import Fraction
from types import MappingProxyType
from typing import Any, ClassVar, NoReturn, TypeVar

from shardwise._pictured import Pictured

from .placement import AVG, P, Placement, R
from .spec import PartitionSpec, partition_spec_get_shard

AxisKey = TypeVar("AxisKey")
"""A ``Mapping`` is not covariant in its keys: this takes one from any kind of axis."""
_EVEN: frozenset[Any] = frozenset()
_UNSCALED: Mapping[Any, Any] = MappingProxyType({})


class Ground(enum.Enum):
    """What is known about the axes that a type does not list, and about the value behind it."""

    ABSENT = "absent"
    """Nothing: an axis that is not listed has not been annotated."""
    CONSTANT = "constant"
    """Made from constants alone: equal on every rank, so it reads as R or I, whichever the other operands need."""
    UNIFORM = "uniform"
    """A constant with one value everywhere (ones, full): it can be cut anywhere."""
    ZERO = "zero"
    """A constant that is zero everywhere: also reads as P, because a sum of zeros is zero."""
    EMPTY = "empty"
    """Uninitialised memory: it takes the type of whatever is written into it."""
    UNKNOWN = "unknown"
    """The result of a rejected call: compatible with anything on every axis."""

    __hash__ = object.__hash__

    @property
    def is_constant(self) -> bool:
        return self is Ground.CONSTANT or self is Ground.UNIFORM or self is Ground.ZERO


Power = int | Fraction
"""A power of an axis's size: a fraction for what a root was taken of, never one that is a whole number."""
Exponent = Power | None
"""Which power of an axis's size a value is too large by; None: nobody knows, and it is compatible with any."""


def as_power(value: Fraction) -> Power:
    """``value`` as an exponent has it: what is whole is an int."""
    return int(value) if value.denominator == 1 else value


class LocalTypes(dict[Any, Any]):
    """A dict from axis to R, I, V or P that cannot be changed: types change through the annotation functions.

    It is shared by every tensor of the type. Copies (``dict(x)``, ``copy``, pickle) are plain dicts.
    """

    __slots__ = ()

    def _refuse(self, *args: object, **kwargs: object) -> NoReturn:
        raise TypeError("a tensor's local type does not support item assignment; use assert_type or mutate_type")

    __setitem__ = __delitem__ = __ior__ = _refuse
    clear = pop = popitem = setdefault = update = _refuse

    def __reduce__(self) -> tuple[object, ...]:
        return (dict, (dict(self),))

    def __copy__(self) -> dict[object, object]:
        return dict(self)

    def __deepcopy__(self, memo: object) -> dict[object, object]:
        return dict(self)


class TensorType(Pictured):
    """Placements per mesh axis, an optional partition spec, and the ground. Make one with ``TensorType.of``.

    ``axes``        the annotated mesh axes, outermost (largest stride) first.
    ``placements``  R, I, V, P or UNKNOWN, one per axis, in the same order.
    ``spec``        normalised PartitionSpec or None; every axis in it is V.
    ``local``       read-only mapping axis -> R/I/V/P, the unknown axes left out.
    ``uneven``      axes of the spec whose shards may differ in length; the others cut their dim evenly.
    ``scale``       read-only mapping from the axes along which the value meant is not what one device computes but that
                    times a power of the axis's size, to the exponent (docs/semantics.md section 9). P(avg) is P with 1.
    ``equal_axes``, ``varying_axes``, ``partial_axes``  those whose placement has that property, outermost first.

    Example:
        >>> tp = normalize_axis("tp")
        >>> TensorType.of({tp: V}, PartitionSpec(tp, None))
        {tp: V} PartitionSpec(tp, None)
        >>> TensorType.of({tp: P}).backward_type()
        {tp: R}
    """

    __slots__ = (
        "__weakref__",
        "_at",
        "axes",
        "equal_axes",
        "ground",
        "local",
        "partial_axes",
        "placements",
        "scale",
        "spec",
        "uneven",
        "varying_axes",
    )

    axes: tuple[Any, ...]
    placements: tuple[Placement, ...]
    spec: PartitionSpec | None
    ground: Ground
    local: Mapping[Any, Any]
    uneven: frozenset[Any]
    scale: Mapping[Any, Exponent]
    equal_axes: tuple[Any, ...]
    varying_axes: tuple[Any, ...]
    partial_axes: tuple[Any, ...]
    _at: dict[Any, Placement]

    _interned: ClassVar[dict[tuple[Any, ...], TensorType]] = {}

    def __init__(self) -> None:
        raise TypeError("TensorType is interned: use TensorType.of(...)")

    @classmethod
    def of(
        cls,
        placements: Mapping[Any, Placement] | Iterable[tuple[Any, Placement]] = (),
        spec: PartitionSpec | None = None,
        ground: Ground = Ground.ABSENT,
        uneven: Collection[object] = _EVEN,
        scale: Mapping[Any, Exponent] = _UNSCALED,
    ) -> TensorType:
        """The one type with these placements; the argument's order does not matter.

        ``uneven`` may name axes that the spec does not have, and ``scale`` axes that the type does not have or does not
        know: only a shard has a length, and only what is known a scale.
        """
        if uneven is not _EVEN:
            uneven = frozenset(axis for axis in uneven if partition_spec_get_shard(spec, axis) is not None) or _EVEN
        items = sorted(dict(placements).items(), key=lambda item: item[0].sort_key)
        axes = tuple(axis for axis, _ in items)
        places = tuple(place for _, place in items)
        averaged = [axis for axis, place in items if place.reduction is AVG]
        if averaged:
            more = {axis: None if (e := scale.get(axis, 0)) is None else e + 1 for axis in averaged}
            scale, items = {**scale, **more}, [(axis, P if axis in more else place) for axis, place in items]
            places = tuple(place for _, place in items)
        if scale:
            scale = {axis: e for axis, place in items if not place.is_unknown and (e := scale.get(axis, 0)) != 0}
        key = (axes, places, spec, ground, uneven, tuple(scale.items()) if scale else ())
        found = cls._interned.get(key)
        if found is not None:
            return found
        made = object.__new__(cls)
        made.axes, made.placements, made.spec, made.ground, made.uneven = axes, places, spec, ground, frozenset(uneven)
        made._at, made.scale = dict(items), scale or _UNSCALED
        made.local = LocalTypes({axis: place for axis, place in items if not place.is_unknown})
        made.equal_axes = tuple(axis for axis, place in items if place.is_equal)
        made.varying_axes = tuple(axis for axis, place in items if place.is_varying)
        made.partial_axes = tuple(axis for axis, place in items if place.is_partial)
        # setdefault is atomic: two threads that make one type at once get one object.
        return cls._interned.setdefault(key, made)

    def get(self, axis: object, default: object = None) -> Any:
        """The placement on ``axis``; ``default`` if the axis is not annotated."""
        return self._at.get(axis, default)

    def is_equal(self, axis: object) -> bool:
        """Every rank of ``axis`` holds the same value; False for an axis that is not annotated, as below."""
        return axis in self.equal_axes

    def is_varying(self, axis: object) -> bool:
        return axis in self.varying_axes

    def is_partial(self, axis: object) -> bool:
        return axis in self.partial_axes

    def is_pending_sum(self, axis: object, decider: str) -> bool:
        """True for P on ``axis``. Errors: ``UndecidedReductionError`` for a pending reduction of another kind."""
        return axis in self.partial_axes and self._at[axis].is_pending_sum(decider)

    def __contains__(self, axis: object) -> bool:
        return axis in self._at

    def exponent(self, axis: object) -> Exponent:
        """The value meant is the axis's size to this power times what one device computes; None: nobody knows."""
        place = self._at.get(axis)
        return None if place is None or place.is_unknown else self.scale.get(axis, 0)

    def with_scale(self, scale: Mapping[AxisKey, Exponent]) -> TensorType:
        """The same type with exactly this scale."""
        return TensorType.of(self._at, self.spec, self.ground, self.uneven, scale)

    def rescaled(self, changes: Mapping[AxisKey, Exponent]) -> TensorType:
        """The same type with another exponent along some axes."""
        return self.with_scale({**self.scale, **changes}) if changes else self

    def of_unknown_scale(self) -> TensorType:
        """The same type, of whose scale nobody knows anything."""
        return self.with_scale(dict.fromkeys(self.axes, None))

    def with_placements(self, changes: Mapping[Any, Placement]) -> TensorType:
        """The same type with some axes set. A changed axis leaves the spec; the ground becomes ABSENT."""
        spec = self.spec
        if spec is not None:
            spec = spec.without({axis for axis, place in changes.items() if place is not self._at.get(axis)})
        return TensorType.of({**self._at, **changes}, spec, uneven=self.uneven, scale=self.scale_under(changes))

    def scale_under(self, changes: Mapping[Any, Placement]) -> Mapping[Any, Exponent]:
        """The scale where these axes get other placements: of what was unknown nobody knows it."""
        lost = {axis: None for axis in changes if axis in self._at and self._at[axis].is_unknown}
        return {**self.scale, **lost} if lost else self.scale

    def with_spec(self, spec: PartitionSpec | None) -> TensorType:
        return TensorType.of(self._at, spec, self.ground, self.uneven, self.scale)

    def with_ground(self, ground: Ground) -> TensorType:
        return TensorType.of(self._at, self.spec, ground, self.uneven, self.scale)

    def with_uneven(self, uneven: Collection[object]) -> TensorType:
        """The same type, whose shards over exactly the axes ``uneven`` may differ in length."""
        return TensorType.of(self._at, self.spec, self.ground, uneven, self.scale)

    def backward_type(self) -> TensorType:
        """The type of the gradient: the dual on every axis, the same spec and the same lengths of shards.

        Its scale is that under a root of backward of exponent 0: n times the value has 1/n of the gradient.
        """
        dual = {axis: place.dual for axis, place in self._at.items()}
        scale = {axis: None if exponent is None else -exponent for axis, exponent in self.scale.items()}
        return TensorType.of(dual, self.spec, uneven=self.uneven, scale=scale)

    def __repr__(self) -> str:
        inner = ", ".join(f"{axis!r}: {place!r}" for axis, place in zip(self.axes, self.placements, strict=True))
        spec = f" {self.spec!r}" if self.spec is not None else ""
        ground = "" if self.ground is Ground.ABSENT else f" ({self.ground.value})"
        uneven = f" (uneven over {', '.join(sorted(map(repr, self.uneven)))})" if self.uneven else ""
        known = {axis: exponent for axis, exponent in self.scale.items() if exponent}
        scale = f" (scale {', '.join(f'{axis!r}**{exponent}' for axis, exponent in known.items())})" if known else ""
        return "{" + inner + "}" + spec + uneven + scale + ground

    def __reduce__(self) -> tuple[object, ...]:
        return (TensorType.of, (dict(self._at), self.spec, self.ground, self.uneven, dict(self.scale)))

    def __copy__(self) -> TensorType:
        return self

    def __deepcopy__(self, memo: object) -> TensorType:
        return self


UNTYPED = TensorType.of()
"""No annotation at all."""
UNKNOWN_TYPE = TensorType.of(ground=Ground.UNKNOWN)
"""The result of a rejected call."""
EMPTY_TYPE = TensorType.of(ground=Ground.EMPTY)
"""Uninitialised memory."""


def constant_type(axes: Iterable[object], *, zero: bool = False, uniform: bool = False) -> TensorType:
    """The type of a factory's result under a mesh with these axes: R everywhere, from constants alone."""
    ground = Ground.ZERO if zero else Ground.UNIFORM if uniform else Ground.CONSTANT
    return TensorType.of(dict.fromkeys(axes, R), ground=ground)
