"""What does one rule say? The shape of a row of the rule book; the rows themselves are in the sibling modules.

A row is data. Its ``linear`` law is a polynomial over the operator's tensor parameters, written as a sum of
products: ``"input other"`` for mul, ``"input + other"`` for add, ``"input weight + bias"`` for linear. From it follows
which operands may be partial: a set of partial operands is admitted exactly when every term has exactly one of them as
a factor, because only then is the result the sum of the ranks' results. Parameters that the polynomial does not name
are non-linear; no polynomial means non-linear in everything.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from .labels import Labeller


class Kind(enum.Enum):
    """What sort of operator a row describes, where the linear law is not the whole story."""

    PURE = "pure"
    """A deterministic function of its operands."""
    CONSTANT = "constant"
    """A factory: the result depends on no tensor and is the same on every rank."""
    ZERO = "zero"
    """A factory of zeros."""
    EMPTY = "empty"
    """A factory of uninitialised memory."""
    RANDOM = "random"
    """Draws random numbers."""
    METADATA = "metadata"
    """Looks at shape, dtype or device only; result is not a typed tensor, or is the operand itself."""
    VALUE = "value"
    """Hands the tensor's value to Python: bool, item, tolist."""
    OPTIMIZER = "optimizer"
    """A fused update of parameters by gradients; gradients have no type yet, destinations keep theirs."""

    __hash__ = object.__hash__


@dataclass(frozen=True, slots=True)
class Term:
    """One product of the polynomial; ``each`` marks a list parameter whose every tensor is a factor (einsum's)."""

    factors: tuple[str, ...]


@dataclass(frozen=True)
class Row:
    """One operator's rule.

    ``op``       canonical name: ``add``, ``linalg.norm``, ``fft.fft``; nn.functional and torch share one name space.
    ``params``   the parameters that may hold tensors or numbers acting as operands, in positional order, written as in
                 PyTorch's documentation; a name that takes no operand (``dim``) stands there to hold its position.
                 ``*name`` is a list of tensors (cat) or the variadic rest (einsum's operands). ``~name`` is a template:
                 only its shape, dtype or storage is used, so its type takes no part in the verdict (``expand_as``, the
                 destination of ``copy_``).
    ``linear``   the polynomial (module docstring); ``*name`` in it: the sum over the list (cat), ``^name``: the product
                 over the list (einsum). Empty: non-linear in everything.
    ``law``      one line: why.
    ``source``   where that comes from.
    ``kind``     see Kind.
    ``view``     True: the result shares memory with the first operand whenever it is a view of it (torch's ``_is_view``
                 decides for ops that may copy, such as reshape).
    ``static``   names of parameters whose values the verdict depends on; they enter the cache key.
    ``guard``    called only when some operand is partial: maps the static values (plus ``"dtypes"``: the operands'
                 dtype names by parameter) to a reason why the linear law does not hold, or None. A static parameter
                 may be a tensor, for its dtype.
    ``draws``    for RANDOM rows: maps the static values to whether this call draws numbers at all; dropout in
                 evaluation does not, and is then an ordinary function. None: always.
    ``spellings`` further names of the same function with the same parameters, e.g. ``("multiply",)``.
    ``labels``   which dims of the operands are which dims of the result (``rules/labels.py``), from ``rules/dims/``;
                 None: only the local rule is known.
    """

    op: str
    params: str = ""
    linear: str = ""
    law: str = ""
    source: str = ""
    kind: Kind = Kind.PURE
    view: bool = False
    static: tuple[str, ...] = ()
    guard: Callable[[Mapping[str, Any]], str | None] | None = None
    draws: Callable[[Mapping[str, Any]], bool] | None = None
    spellings: tuple[str, ...] = ()
    labels: Labeller | None = None

    def __post_init__(self) -> None:
        named = {factor.lstrip("*^") for term in self.terms for factor in term.factors}
        known = {name.lstrip("*") for name in self.parameters}  # a template keeps its mark and is not known
        if not named <= known:
            raise ValueError(f"row {self.op!r}: the law {self.linear!r} names {sorted(named - known)}, not in params")
        if self.linear and not self.law:
            raise ValueError(f"row {self.op!r}: a linear law needs its one-line reason in law=")

    @property
    def parameters(self) -> tuple[str, ...]:
        return tuple(self.params.split())

    @property
    def templates(self) -> frozenset[str]:
        return frozenset(name.lstrip("~") for name in self.parameters if name.startswith("~"))

    @property
    def terms(self) -> tuple[Term, ...]:
        return tuple(Term(tuple(term.split())) for term in self.linear.split("+") if term.strip())
