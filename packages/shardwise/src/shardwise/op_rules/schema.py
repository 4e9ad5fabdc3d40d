"""The shape of an op rule: what is said of one operator; the rules themselves are in ``operators``.

An op rule is data. Its ``linear`` law is a polynomial over the operator's tensor parameters, written as a sum of
products: ``"input other"`` for mul, ``"input + other"`` for add, ``"input weight + bias"`` for linear. From it follows
which operands may be partial: a set of partial operands is admitted exactly when every term has exactly one of them as
a factor, because only then is the result the sum of the ranks' results. Parameters that the polynomial does not name
are non-linear; no polynomial means non-linear in everything.
"""

from __future__ import annotations

import enum
import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from . import derived
from .propagation.dim_labels import Labeller


class Kind(enum.Enum):
    """What sort of operator a rule describes, where the linear law is not the whole story."""

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
    CONTROL = "control flow"
    """Runs functions of the program, and joins their results by the law."""
    OPTIMIZER = "optimizer"
    """A fused update of parameters by gradients; gradients have no type yet, destinations keep theirs."""

    __hash__ = object.__hash__


@dataclass(frozen=True, slots=True)
class Term:
    """One product of the polynomial; ``each`` marks a list parameter whose every tensor is a factor (einsum's)."""

    factors: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Result:
    """A result with a law of its own.

    ``linear``  its polynomial, as in ``OpRule``.
    ``of``      the parameters that it follows from, ``"A"``; empty: all of them.
    """

    linear: str = ""
    of: str = ""


class Each(enum.Enum):
    """How the results of a rule that has one per tensor of its list follow from the tensors."""

    APART = "apart"
    """Each is the operator on its tensor alone: one call is as good as several (atleast_2d)."""
    SHAPED = "shaped"
    """Each has the values of its tensor and a shape that follows from all of them (meshgrid)."""

    __hash__ = object.__hash__


@dataclass(frozen=True, slots=True)
class Decided:
    """A size of a result that values decide, and not shapes.

    ``by``       the operands whose values decide.
    ``dims``     of every result the dim that they decide, None for none; a single entry is for all results.
    ``text``     what the size of the dim is, in words.
    ``instead``  how the same is had with a size that no value decides.
    """

    by: tuple[Any, ...]
    dims: tuple[int | None, ...]
    text: str
    instead: str


Arguments = Mapping[str, Any]
Guard = Callable[[Arguments], "str | None"]

LEFT_OUT: Any = None
TORCHS = "..."
"""For ``params``: the parameters that torch's own metadata names (``derived.py``); without any, ``input other``."""


@dataclass(frozen=True)
class OpRule:
    """One operator's rule.

    ``op``       canonical name: ``add``, ``linalg.norm``, ``fft.fft``; nn.functional and torch share one name space.
    ``params``   the parameters that may hold tensors or numbers acting as operands, in positional order, written as in
                 PyTorch's documentation; a name that takes no operand (``dim``) stands there to hold its position.
                 ``*name`` is a list of tensors (cat) or the variadic rest (einsum's operands). ``~name`` is a template:
                 only its shape, dtype or storage is used, so its type takes no part in the verdict (``expand_as``, the
                 destination of ``copy_``). Left out: those of torch's own metadata.
    ``linear``   the polynomial (module docstring); ``*name`` in it: the sum over the list (cat), ``^name``: the product
                 over the list (einsum). Empty: non-linear in everything.
    ``others``   the results after the first one, where they do not follow its law (``solve_ex``: the solution is
                 linear in the right-hand side, the status follows from the matrix alone). Empty: one law for all.
    ``each``     set where the only parameter is a list and there is one result per tensor in it.
    ``law``      one line: why.
    ``source``   where that comes from; left out: the operator itself.
    ``kind``     see Kind.
    ``view``     True: the result shares memory with the first operand whenever it is a view of it (torch's ``_is_view``
                 decides for ops that may copy, such as reshape). Left out: as torch's own metadata says.
    ``static``   names of parameters whose values the verdict depends on; they enter the cache key.
    ``guard``    called only when some operand is partial: maps the static values (plus ``"dtypes"``: the operands'
                 dtype names by parameter, and ``"partial"``: the parameters that are partial along some axis) to a
                 reason why the linear law does not hold, or None. A static parameter may be a tensor, for its dtype or
                 its shape.
    ``draws``    for RANDOM rules: maps the static values to whether this call draws numbers at all; dropout in
                 evaluation does not, and is then an ordinary function. None: always.
    ``lengths``  for operators whose result has a size that values decide: which one, for a call with these arguments.
    ``spellings`` further names of the same function with the same parameters, beside torch's own aliases.
    ``labels``   which dims of the operands are which dims of the result (``propagation/dim_labels.py``); None: only the
                 local rule is known.
    """

    op: str
    params: str = TORCHS
    linear: str = ""
    others: tuple[Result, ...] = ()
    each: Each | None = None
    law: str = ""
    source: str = ""
    kind: Kind = Kind.PURE
    view: bool = LEFT_OUT
    static: tuple[str, ...] = ()
    guard: Guard | None = None
    draws: Callable[[Arguments], bool] | None = None
    lengths: Callable[[Arguments], Decided | None] | None = None
    spellings: tuple[str, ...] = ()
    labels: Labeller | None = None

    def __post_init__(self) -> None:
        if self.params == TORCHS:
            object.__setattr__(
                self, "params", derived.PARAMETERS.get(self.op, "input other" if self.kind is Kind.PURE else "")
            )
        if self.view is LEFT_OUT:
            object.__setattr__(self, "view", self.op in derived.VIEWS)
        if self.linear and not self.source:
            object.__setattr__(self, "source", f"torch.{self.op.removeprefix('torch.')}")
        known = {name.lstrip("*") for name in self.parameters}  # a template keeps its mark and is not known
        for linear, of in ((self.linear, ""), *((other.linear, other.of) for other in self.others)):
            named = {factor.lstrip("*^") for term in _terms(linear) for factor in term.factors} | {*of.split()}
            if not named <= known:
                raise ValueError(f"rule {self.op!r}: the law {linear!r} names {sorted(named - known)}, not in params")
        if self.each is not None and not (len(self.parameters) == 1 and self.params.startswith("*")):
            raise ValueError(f"rule {self.op!r}: one result per tensor needs a list as the only parameter")
        if self.linear and not self.law:
            raise ValueError(f"rule {self.op!r}: a linear law needs its one-line reason in law=")

    @property
    def parameters(self) -> tuple[str, ...]:
        return tuple(self.params.split())

    @property
    def templates(self) -> frozenset[str]:
        return frozenset(name.lstrip("~") for name in self.parameters if name.startswith("~"))

    @property
    def terms(self) -> tuple[Term, ...]:
        return _terms(self.linear)

    @functools.cached_property
    def single(self) -> tuple[tuple[OpRule, frozenset[str] | None], ...]:
        """A rule for each result with a law of its own, and the parameters that it follows from (None: all)."""
        return (
            (replace(self, others=()), None),
            *(
                (replace(self, linear=other.linear, others=()), frozenset(other.of.split()) or None)
                for other in self.others
            ),
        )


def _terms(linear: str) -> tuple[Term, ...]:
    return tuple(Term(tuple(term.split())) for term in linear.split("+") if term.strip())


def opaque(
    why: str, names: str, params: str = TORCHS, *, labels: Labeller | None = None, view: bool = LEFT_OUT
) -> tuple[OpRule, ...]:
    """Operators that are linear in nothing, because of ``why``; they have their labels in common.

    A pending sum must be reduced before any of them; equal operands give equal results, and varying ones varying ones.
    """
    law = f"{why}: a pending sum does not pass"
    return tuple(OpRule(op, params, law=law, labels=labels, view=view) for op in names.split())
