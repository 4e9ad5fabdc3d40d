"""Labels: which dims of the operands are which dims of the result, the einsum-like half of an op rule.

Every dim of every tensor operand and result gets a label. A label that operands and results share is kept; one that
only operands have is contracted, and its ``Fate`` says how. From labels alone follows what sharding an operator admits
along one mesh axis (``op_rules/propagation/sharded.py``).

Signatures are written ``"*b m k, *b k n -> *b m n"``: one term per operand, right-aligned; ``*b`` is any number of
leading dims, broadcast. ``[d]`` is opaque: its elements are mixed in a way that no shard can do alone. ``_`` is a dim
that is nobody else's. Relatives are einops patterns and Shardy's factor rules.
"""

from __future__ import annotations

import enum
import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any


class Fate(enum.Enum):
    """What happens along a label that the result does not simply keep."""

    SUM = "sum"
    """Summed, in the terms of the linear law that have it: a sharded operand gives a partial result."""
    TOTAL = "total"
    """The whole result is a sum of contributions, one per element along the label and each a function, linear or not,
    of that element and of what all share: a summed loss, a count. A sharded operand gives a partial result."""
    MEAN = "mean"
    """Averaged: a shard has the mean of its own elements only."""
    MAXIMUM = "max"
    """Reduced to its largest element: a shard has the largest of its own, and the largest of these is it."""
    MINIMUM = "min"
    """Reduced to its smallest element."""
    NORM = "norm"
    """The root of the sum of its squares: a shard has the norm of its own, and the norm of these is it."""
    EXTREMUM = "product"
    """Reduced by something else than a sum, a maximum or a minimum."""
    OPAQUE = "opaque"
    """Mixed: no shard can do its part alone."""
    POSITION = "position"
    """Kept, but the values depend on the position along the dim, which a shard does not know (tril, arange)."""

    __hash__ = object.__hash__


Label = str
Dims = tuple[Label | None, ...]
"""The labels of one tensor's dims; None for a dim of size 1 that is broadcast, which cannot be sharded."""


@dataclass(frozen=True, slots=True)
class Labelling:
    """The labels of one call.

    ``operands``  one ``Dims`` per tensor operand, in the call's order.
    ``results``   one ``Dims`` per result tensor; a single one stands for all results.
    ``fates``     what happens to labels that are not merely kept.
    ``why``       for an opaque label: what mixes along it, for the message.
    ``even``      labels whose shards must have equal sizes for the rule to hold.
    ``grouped``   labels whose shards must be whole groups of elements each; the call fails on any other.
    ``ragged``    labels along which the result's shards may differ in length, however even the operands' are.
    ``weighed``   averaged labels whose elements do not count alike (weights, an index that is ignored).
    ``spread``    operands (by position) and labels of theirs with size 1 which may be whole where others are sharded,
                  because one element then serves all; left out, a dim of size 1 is a shard or has no label.
    """

    operands: tuple[Dims, ...]
    results: tuple[Dims, ...]
    fates: Mapping[Label, Fate] = field(default_factory=dict)
    why: Mapping[Label, str] = field(default_factory=dict)
    even: frozenset[Label] = frozenset()
    grouped: frozenset[Label] = frozenset()
    ragged: frozenset[Label] = frozenset()
    spread: frozenset[tuple[int, Label]] = frozenset()
    weighed: frozenset[Label] = frozenset()

    def fate(self, label: Label) -> Fate | None:
        """The fate of ``label``; None if the results keep it. A label that only operands have is summed."""
        found = self.fates.get(label)
        if found is None and not any(label in dims for dims in self.results):
            return Fate.SUM
        return found


@dataclass(frozen=True, slots=True)
class Shape:
    """What a labelling sees of a tensor operand: its local shape, dtype name, and which parameter it is."""

    shape: tuple[int, ...]
    param: str = ""
    dtype: str = "float32"

    @property
    def ndim(self) -> int:
        return len(self.shape)


NumberPlace = tuple[str, int]
"""Where a number stands: its parameter, and its place in a list; 0 for a number that is the argument."""


@dataclass(frozen=True, slots=True)
class Call:
    """One call as a labelling sees it: tensors are ``Shape``s.

    ``tensors``    the tensor operands in order of appearance.
    ``arguments``  every argument by parameter name; a tensor is its Shape, a list of tensors a list of Shapes.
    ``shares``     for each mesh axis, the numbers among the arguments that are one n-th of what the program on one
                   device gives, n being the axis's ranks: by parameter, and place in its list.
    ``shared``     those of the axis along which labels are asked for; a label may depend on it.
    """

    tensors: tuple[Shape, ...]
    arguments: Mapping[str, Any]
    shares: Mapping[Any, frozenset[NumberPlace]] = field(default_factory=dict)
    shared: frozenset[NumberPlace] = frozenset()

    def along(self, axis: object) -> Call:
        """The call as the labels along a mesh axis are made from it."""
        return replace(self, shared=self.shares[axis]) if axis in self.shares else self

    def is_shared(self, name: str) -> bool:
        """True if the number called ``name`` is one n-th of the one on one device."""
        return (name, 0) in self.shared

    def get(self, name: str, default: object = None) -> Any:
        """The argument called ``name``; ``default`` if it was not given."""
        return self.arguments.get(name, default)

    @property
    def first(self) -> Shape:
        return self.tensors[0]


Labeller = Callable[[Call], Labelling | None]
"""Labels a call, or None if it cannot tell (then nothing sharded is admitted)."""


def dim_index(dim: int, ndim: int) -> int:
    """A tensor dim counted from the front."""
    return dim + ndim if dim < 0 else dim


def dims_given(call: Call, *names: str, ndim: int | None = None) -> tuple[int, ...] | None:
    """The dims that an argument names, from the front: an int, a list, or nothing (None or empty), which is all dims.

    ``names``  of the parameter, ``dim`` if left out; the first that was given counts. A truth value is no dim, because
               overloads have a flag in that place.
    ``ndim``   of the tensor meant, the first operand's if left out.
    Gives None if a dim is out of range.
    """
    count = call.first.ndim if ndim is None else ndim
    given = next((call.arguments[name] for name in names or ("dim", "axis") if name in call.arguments), None)
    if given is None or isinstance(given, bool):
        return tuple(range(count))
    listed = list(given) if isinstance(given, (list, tuple)) else [given]
    if not all(isinstance(dim, int) and -max(count, 1) <= dim < max(count, 1) for dim in listed):
        return None
    return tuple(dim_index(dim, count) for dim in listed if count) or tuple(range(count))


def numbered(ndim: int, name: str = "i") -> tuple[Label, ...]:
    """One label per dim, counted from the front: ``i0``, ``i1``."""
    return tuple(f"{name}{dim}" for dim in range(ndim))


def broadcast(shapes: Sequence[tuple[int, ...]]) -> tuple[list[Dims], Dims]:
    """Labels of operands broadcast together, and of the result: ``d0`` is the last dim, ``d1`` the one before."""
    ndim = max((len(shape) for shape in shapes), default=0)
    size = [max((s[len(s) - 1 - at] for s in shapes if at < len(s)), default=1) for at in range(ndim)]
    rows: list[Dims] = []
    for shape in shapes:
        row = []
        for position, extent in enumerate(shape):
            at = len(shape) - 1 - position
            row.append(None if extent == 1 and size[at] != 1 else f"d{at}")
        rows.append(tuple(row))
    return rows, tuple(f"d{at}" for at in reversed(range(ndim)))


def pointwise(call: Call) -> Labelling:
    """Element by element, operands broadcast against each other."""
    rows, result = broadcast([tensor.shape for tensor in call.tensors])
    return Labelling(tuple(rows), (result,), spread=singles(rows, call.tensors))


def broadcast_into(call: Call) -> Labelling | None:
    """What is written is broadcast into a destination, whose own value does not matter."""
    into = call.get("input")
    if into is None or len(call.tensors) != 1:
        return None
    rows, result = broadcast([call.first.shape, into.shape])
    return Labelling((rows[0],), (result,), spread=singles(rows[:1], call.tensors))


def singles(rows: Sequence[Dims], tensors: Sequence[Shape]) -> frozenset[tuple[int, Label]]:
    """Operands and labels of theirs with size 1 that broadcasting would stretch: one element serves all shards."""
    return frozenset(
        (at, label)
        for at, (row, tensor) in enumerate(zip(rows, tensors, strict=True))
        for label, extent in zip(row, tensor.shape, strict=True)
        if extent == 1 and label is not None
    )


def signature(text: str) -> Labeller:
    """The labeller for a signature such as ``"*b m k, *b k n -> *b m n"``."""
    left, _, right = text.partition("->")
    terms = [_parse_term(term) for term in left.split(",")]
    results = [_parse_term(term) for term in right.split(",")] if right.strip() else []
    opaque = {label for term in terms for label, mixed in term if mixed}

    def label(call: Call) -> Labelling | None:
        if len(call.tensors) > len(terms):
            return None
        operands: list[Dims] = []
        lead: dict[str, list[tuple[int, ...]]] = {}
        for tensor, term in zip(call.tensors, terms, strict=False):
            fixed = [name for name, _ in term if not name.startswith("*")]
            extra = tensor.ndim - len(fixed)
            if extra < 0 or (extra and not any(name.startswith("*") for name, _ in term)):
                return None
            for name, _ in term:
                if name.startswith("*"):
                    lead.setdefault(name, []).append(tensor.shape[:extra])
        spread = {name: broadcast(shapes) for name, shapes in lead.items()}
        taken = dict.fromkeys(spread, 0)
        for at, (_tensor, term) in enumerate(zip(call.tensors, terms, strict=False)):
            dims: list[Label | None] = []
            for name, _ in term:
                if name.startswith("*"):
                    dims += [d and name[1:] + d for d in spread[name][0][taken[name]]]
                    taken[name] += 1
                else:
                    dims.append(f"_{at}.{len(dims)}" if name == "_" else name)
            operands.append(tuple(dims))
        made = []
        for term in results:
            row: list[Label | None] = []
            for name, _ in term:
                row += [d and name[1:] + d for d in spread.get(name, ((), ()))[1]] if name.startswith("*") else [name]
            made.append(tuple(row))
        fates = dict.fromkeys(opaque, Fate.OPAQUE)
        fates |= {d: Fate.OPAQUE for dims in operands for d in dims if d is not None and d.startswith("_")}
        stretched = {name[1:] + d for name, (_, dims) in spread.items() for d in dims if d is not None}
        single = {pair for pair in singles(operands, call.tensors) if pair[1] in stretched}
        return Labelling(tuple(operands), tuple(made), fates, spread=frozenset(single))

    label.__name__ = text
    return label


@functools.cache
def _parse_term(term: str) -> tuple[tuple[str, bool], ...]:
    """Labels of one term, True for the opaque ones."""
    return tuple((word.strip("[]"), word.startswith("[")) for word in term.split())
