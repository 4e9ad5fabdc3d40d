"""What can a tensor be along one mesh axis? R, I, V, P, or S(i), and what is its gradient then?

Source: the duality table of the specification, semantics section 2. Replicate and partial are dual, invariant,
varying and shard are their own duals, and taking the dual twice changes nothing.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Final

from .errors import SpmdTypeError


class PerMeshAxisLocalSpmdType(enum.Enum):
    """A local type: what the tensors of the ranks along one mesh axis have to do with each other."""

    R = "R"
    """Replicate: equal on all ranks, used differently by each; the gradient is a pending sum (P)."""
    I = "I"
    """Invariant: equal on all ranks, one computation that every rank repeats; the gradient is invariant."""
    V = "V"
    """Varying: different on each rank; nothing is claimed about how the pieces combine."""
    P = "P"
    """Partial: the value meant is the sum over the ranks, and the sum is still pending."""

    def backward_type(self) -> PerMeshAxisLocalSpmdType:
        """The local type of the gradient of a tensor of this type."""
        return _DUAL[self]

    def __repr__(self) -> str:
        return self.value

    def __str__(self) -> str:
        return self.value

    # Members are singletons compared by identity; the default hash goes through the name's string.
    __hash__ = object.__hash__


R: Final = PerMeshAxisLocalSpmdType.R
I: Final = PerMeshAxisLocalSpmdType.I
V: Final = PerMeshAxisLocalSpmdType.V
P: Final = PerMeshAxisLocalSpmdType.P
Replicate, Invariant, Varying, Partial = R, I, V, P

EQUAL: Final = (R, I)
"""Where every rank holds the same value. What the two mean differs in the gradient, so where none flows they mix."""

_DUAL = {R: P, P: R, I: I, V: V}


@dataclass(frozen=True, slots=True)
class Shard:
    """Varying, and the pieces are the global tensor cut evenly along tensor dim ``dim`` in mesh order.

    A negative ``dim`` counts from the end; it is resolved where the tensor is known.
    """

    dim: int

    def __post_init__(self) -> None:
        if not isinstance(self.dim, int) or isinstance(self.dim, bool):
            raise TypeError(f"S(dim) takes a tensor dim as an int, got {self.dim!r} of type {type(self.dim).__name__}")

    def backward_type(self) -> Shard:
        """The gradient of a shard is sharded the same way."""
        return self

    def __repr__(self) -> str:
        return f"S({self.dim})"

    __str__ = __repr__


S = Shard

PerMeshAxisSpmdType = PerMeshAxisLocalSpmdType | Shard


class _Unknown:
    """The placement of a value that a rejected call produced: compatible with anything, never reported again."""

    __slots__ = ()

    def backward_type(self) -> _Unknown:
        return self

    def __repr__(self) -> str:
        return "?"

    def __reduce__(self) -> str:
        return "UNKNOWN"


UNKNOWN: Final = _Unknown()

Placement = PerMeshAxisLocalSpmdType | _Unknown
"""What a tensor's type stores per axis. A shard is stored as V here and as an entry of the partition spec."""


def to_local_type(placement: PerMeshAxisSpmdType) -> PerMeshAxisLocalSpmdType:
    """The local type that a placement refines: S(i) is V, every other placement is itself."""
    return V if isinstance(placement, Shard) else placement


def resolve_dim(shard: Shard, ndim: int) -> int:
    """The dim of ``shard`` counted from the front, for a tensor of ``ndim`` dims. Errors: SW132 if out of range."""
    dim = shard.dim + ndim if shard.dim < 0 else shard.dim
    if not 0 <= dim < ndim:
        raise SpmdTypeError(f"{shard} names a dim that a tensor with ndim {ndim} does not have", code="SW132")
    return dim
