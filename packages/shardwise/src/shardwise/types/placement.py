"""Placements along one mesh axis (R, I, V, P, S(i), unknown), their properties, their duals, and the reduction kinds.

Callers ask what a placement *is* (``is_equal``, ``is_varying``, ``is_partial``), not which one it is, so that a further
kind of pending reduction is one ``ReductionKind``. Code that was derived for the sum asks ``is_pending_sum``, which
raises for a kind that nobody has decided about.
Source: docs/semantics.md section 2, Law 2.1. Replicate and partial are dual, invariant,
varying and shard are their own duals, and taking the dual twice changes nothing.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import ClassVar, Final

from shardwise._pictured import Pictured
from shardwise.diagnostics.errors import SpmdTypeError, SpmdValueError, shown
from shardwise.diagnostics.respelling import Instead


@dataclass(frozen=True, slots=True, eq=False)
class ReductionKind:
    """How the tensors of the ranks combine to the value that a pending reduction denotes.

    ``dual``  the value of the gradient's placement, "R" for the sum, "V" where each rank's is its own; None if no
              gradient flows through the reduction.
    """

    name: str
    dual: str | None = None

    def __repr__(self) -> str:
        return self.name


SUM: Final = ReductionKind("sum", dual="R")
MAX: Final = ReductionKind("max")
MIN: Final = ReductionKind("min")

AVG: Final = ReductionKind("avg", dual="R")
"""A pending average, which types write as a pending sum of one power of the axis's size more (``TensorType.scale``)."""

NORM: Final = ReductionKind("norm", dual="V")
"""A pending Euclidean norm: the value denoted is the root of the sum of the squares of the ranks' values."""

KINDS: Final = {"sum": SUM, "max": MAX, "min": MIN, "avg": AVG, "norm": NORM}
"""The reduction kinds by name."""


class UndecidedReductionError(SpmdTypeError):
    """A pending reduction of a kind that the code which met it was not derived for."""


_WORDS: Final = {"R": "replicate", "I": "invariant", "V": "varying", "P": "a partial sum"}
_LONG: Final = {"max": "maximum", "min": "minimum", "avg": "average"}


class AxisPlacement(Pictured):
    """R, I, V, P and S(i): what the values of ``{"dp": S(0), "tp": R}`` in a variable have in common."""

    __slots__ = ()


class PerMeshAxisLocalSpmdType(AxisPlacement, enum.Enum):
    """A local type: what the tensors of the ranks along one mesh axis have to do with each other.

    The members are interned, so equality is identity. ``P(kind)`` is the pending reduction of another kind: one more
    interned instance of this class, which iteration over the members does not give.

    ``is_equal``    every rank holds the same value (R, I). What the two mean differs in the gradient, so where none
                    flows they mix.
    ``is_varying``  nothing is claimed about how the ranks' tensors combine (V; S(i) says it too).
    ``is_partial``  a reduction is pending, of whatever kind.
    ``is_unknown``  nothing is known (only ``UNKNOWN`` says it).
    ``reduction``   the kind of the pending reduction, or None.
    ``is_extremum`` the pending reduction is a maximum or a minimum.
    ``word``        what messages call it.

    Example:
        >>> R.is_equal, V.is_varying, P.is_partial, P.reduction
        (True, True, True, sum)
        >>> list(PerMeshAxisLocalSpmdType)
        [R, I, V, P]
    """

    R = "R"
    """Replicate: equal on all ranks, used differently by each; the gradient is a pending sum (P)."""
    I = "I"
    """Invariant: equal on all ranks, one computation that every rank repeats; the gradient is invariant."""
    V = "V"
    """Varying: different on each rank; nothing is claimed about how the pieces combine."""
    P = "P"
    """Partial: the value meant is the sum over the ranks, and the sum is still pending."""

    # Plain attributes of the instance: the warm path reads them.
    is_equal: bool
    is_varying: bool
    is_partial: bool
    is_unknown: bool
    is_extremum: bool
    reduction: ReductionKind | None
    word: str

    def __init__(self, letter: str) -> None:
        self._describe(SUM if letter == "P" else None)

    def _describe(self, reduction: ReductionKind | None) -> None:
        self.is_equal = self._value_ in ("R", "I")
        self.is_varying = self._value_ == "V"
        self.is_partial = reduction is not None
        self.is_unknown = False
        self.is_extremum = reduction is MAX or reduction is MIN
        self.reduction = reduction
        self.word = _WORDS.get(self._value_) or f"a pending {_LONG.get(str(reduction), reduction)}"

    @classmethod
    def _missing_(cls, value: object) -> PerMeshAxisLocalSpmdType | None:
        """``P(kind)`` as it is printed, for a kind that is known by name."""
        kind = KINDS.get(value[2:-1]) if isinstance(value, str) and value[:2] == "P(" and value[-1] == ")" else None
        return None if kind is None else cls.P(kind)

    def __call__(self, kind: str | ReductionKind) -> PerMeshAxisLocalSpmdType:
        """``P(kind)``; ``P("sum") is P``. Errors: ValueError (SW905) for an unknown kind or on a type other than P."""
        if self is not PerMeshAxisLocalSpmdType.P:
            raise SpmdValueError(f"{self!r} is no pending reduction and takes no kind; P(kind) does", code="SW905")
        found = kind if isinstance(kind, ReductionKind) else KINDS.get(kind) if isinstance(kind, str) else None
        if found is None:
            raise SpmdValueError(
                f"the kind of a pending reduction is one of {', '.join(sorted(KINDS))}, got {shown(kind)}", code="SW905"
            )
        if found is SUM:
            return self
        made = object.__new__(PerMeshAxisLocalSpmdType)
        made._name_ = made._value_ = f"P({found.name})"
        made._describe(found)
        # setdefault is atomic: two threads that ask for one kind at once get one object.
        return _OF_KIND.setdefault(found, made)

    @property
    def dual(self) -> PerMeshAxisLocalSpmdType:
        """The local type of the gradient of a tensor of this type. Errors: SW905 where no gradient flows."""
        if self.reduction is None:
            return PerMeshAxisLocalSpmdType.P if self is PerMeshAxisLocalSpmdType.R else self
        if self.reduction.dual is None:
            raise undecided(self, "the gradient", help=("x.detach() before it",))
        return PerMeshAxisLocalSpmdType(self.reduction.dual)

    def backward_type(self) -> PerMeshAxisLocalSpmdType:
        """``dual``, as the reference's API spells it."""
        return self.dual

    @property
    def opposite(self) -> PerMeshAxisLocalSpmdType:
        """What a pending maximum or minimum of ``x`` is as one of ``-x``."""
        return P(MIN if self.reduction is MAX else MAX)

    def is_pending_sum(self, decider: str) -> bool:
        """True for P, False where no reduction is pending. ``decider`` names what was derived for the sum alone.

        Errors: ``UndecidedReductionError`` (SW905) for any other kind, naming it and the decider.
        """
        if self.reduction is None or self.reduction is SUM:
            return self.is_partial
        raise undecided(self, decider)

    def __repr__(self) -> str:
        return str(self._value_)

    def __str__(self) -> str:
        return str(self._value_)

    def __reduce_ex__(self, protocol: object) -> tuple[object, ...]:
        return PerMeshAxisLocalSpmdType, (self._value_,)

    def __copy__(self) -> PerMeshAxisLocalSpmdType:
        return self

    def __deepcopy__(self, memo: object) -> PerMeshAxisLocalSpmdType:
        return self

    # Members are singletons compared by identity; the default hash goes through the name's string.
    __hash__ = object.__hash__


_OF_KIND: dict[ReductionKind, PerMeshAxisLocalSpmdType] = {}

R: Final = PerMeshAxisLocalSpmdType.R
"""Replicate: equal on all ranks, used differently by each; the gradient is a pending sum (P).

Example:
    >>> x, y = assert_type(torch.ones(4), {"tp": R}), assert_type(torch.ones(4), {"tp": V})
    >>> print(typeof(x * y))
    f32[4] {dp: R, tp: V}
    >>> R.dual
    P
"""
I: Final = PerMeshAxisLocalSpmdType.I
"""Invariant: equal on all ranks, one computation that every rank repeats; the gradient is invariant.

Example:
    >>> print(typeof(assert_type(torch.ones(4), {"tp": I})))
    f32[4] {dp: R, tp: I}
    >>> I.dual
    I
"""
V: Final = PerMeshAxisLocalSpmdType.V
"""Varying: different on each rank; nothing is claimed about how the pieces combine. Its own dual.

Example:
    >>> print(typeof(assert_type(torch.ones(4), {"tp": V})))
    f32[4] {dp: R, tp: V}
    >>> V.dual
    V
"""
P: Final = PerMeshAxisLocalSpmdType.P
"""Partial: the value meant is the sum over the ranks, still to be taken; the gradient is replicate (R).

Example:
    >>> x = assert_type(torch.ones(4), {"tp": P})
    >>> print(typeof(all_reduce(x, "tp", dst=R)))
    f32[4] {dp: R, tp: R}
    >>> P.dual
    R
"""
Replicate, Invariant, Varying, Partial = R, I, V, P


def undecided(placement: object, decider: str, help: tuple[str, ...] = ()) -> UndecidedReductionError:
    """The error of ``decider`` for a pending reduction of a kind that it was not derived for."""
    return UndecidedReductionError(
        f"{placement!r} is a pending reduction of a kind for which {decider} is not defined; it is for the sum (P)",
        code="SW905",
        help=help or ("all_reduce it first",),
    )


@dataclass(frozen=True, slots=True)
class Shard(AxisPlacement):
    """Varying, and the pieces are the global tensor cut evenly along tensor dim ``dim`` in mesh order.

    A negative ``dim`` counts from the end; it is resolved where the tensor is known.

    Example:
        >>> print(typeof(assert_type(torch.ones(4, 8), {"tp": S(1)})))
        f32[4, 8@tp] {dp: R}
        >>> S(1).dual
        S(1)
    """

    dim: int

    is_equal: ClassVar[bool] = False
    is_varying: ClassVar[bool] = True
    is_partial: ClassVar[bool] = False
    is_unknown: ClassVar[bool] = False
    is_extremum: ClassVar[bool] = False
    reduction: ClassVar[None] = None
    word: ClassVar[str] = "sharded"

    def __post_init__(self) -> None:
        if not isinstance(self.dim, int) or isinstance(self.dim, bool):
            raise TypeError(
                f"S(dim) takes a tensor dim as an int, got {shown(self.dim)} of type {type(self.dim).__name__}"
            )

    @property
    def dual(self) -> Shard:
        """The gradient of a shard is sharded the same way."""
        return self

    def backward_type(self) -> Shard:
        return self

    def is_pending_sum(self, decider: str) -> bool:
        return False

    def __repr__(self) -> str:
        return f"S({self.dim})"

    __str__ = __repr__


S = Shard

PerMeshAxisSpmdType = PerMeshAxisLocalSpmdType | Shard
"""What a tensor can be along one mesh axis: R, I, V, P or S(i).

Example:
    >>> def says_dim(placement: PerMeshAxisSpmdType) -> bool:
    ...     return isinstance(placement, S)
    >>> says_dim(S(0)), says_dim(V)
    (True, False)
"""


class _Unknown:
    """The placement of a value that a rejected call produced: compatible with anything, never reported again."""

    __slots__ = ()

    is_equal: ClassVar[bool] = False
    is_varying: ClassVar[bool] = False
    is_partial: ClassVar[bool] = False
    is_unknown: ClassVar[bool] = True
    is_extremum: ClassVar[bool] = False
    reduction: ClassVar[None] = None
    word: ClassVar[str] = "unknown"

    @property
    def dual(self) -> _Unknown:
        return self

    def backward_type(self) -> _Unknown:
        return self

    def is_pending_sum(self, decider: str) -> bool:
        return False

    def __repr__(self) -> str:
        return "?"

    def __reduce__(self) -> str:
        return "UNKNOWN"


UNKNOWN: Final = _Unknown()

Placement = PerMeshAxisLocalSpmdType | _Unknown
"""What a tensor's type stores per axis. A shard is stored as V here and as an entry of the partition spec."""


def to_local_type(placement: PerMeshAxisSpmdType) -> PerMeshAxisLocalSpmdType:
    """The local type that a placement refines: S(i) is V, every other placement is itself.

    Example:
        >>> to_local_type(S(0)), to_local_type(R)
        (V, R)
    """
    return V if isinstance(placement, Shard) else placement


def resolve_dim(shard: Shard, ndim: int) -> int:
    """The dim of ``shard`` counted from the front, for a tensor of ``ndim`` dims. Errors: SW132 if out of range."""
    dim = shard.dim + ndim if shard.dim < 0 else shard.dim
    if not 0 <= dim < ndim:
        last = f"S({ndim - 1})"
        meant = (Instead(f"{last}, its last dim, if that is meant", repr(shard), f"spmd.{last}"),) if ndim else ()
        raise SpmdTypeError(
            f"{shard} names a dim that a tensor with ndim {ndim} does not have",
            code="SW132",
            meant=meant,
            said=repr(shard),
        )
    return dim
