"""How is a rule tried out? By a case: a call with placeholders for tensors, bound as the rule says, run as torch does.

Because the operands' parameters come from the rule and the call goes to torch, a rule whose parameters are in the wrong
order fails its case.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from shardwise.op_rules.propagation.local import Given, Weak
from shardwise.op_rules.registry import lookup
from shardwise.op_rules.schema import OpRule
from shardwise.types.placement import P, PerMeshAxisLocalSpmdType


@dataclass(frozen=True)
class Value:
    """A placeholder: makes an operand's value from a generator."""

    make: Callable[[torch.Generator], torch.Tensor]

    def __repr__(self) -> str:
        return "Value"  # an id with an address in it would differ between the workers of pytest-xdist


def real(*shape: int) -> Value:
    return Value(lambda g: torch.randn(shape, dtype=torch.float64, generator=g))


def positive(*shape: int) -> Value:
    return Value(lambda g: torch.rand(shape, dtype=torch.float64, generator=g) + 0.5)


def unit(*shape: int) -> Value:
    return Value(lambda g: torch.rand(shape, dtype=torch.float64, generator=g) * 0.8 + 0.1)


def complexes(*shape: int) -> Value:
    return Value(lambda g: torch.randn(shape, dtype=torch.complex128, generator=g))


def index(high: int, *shape: int) -> Value:
    return Value(lambda g: torch.randint(0, high, shape, generator=g))


def distinct(high: int, count: int) -> Value:
    return Value(lambda g: torch.randperm(high, generator=g)[:count])


def mask(*shape: int) -> Value:
    def make(g: torch.Generator) -> torch.Tensor:
        drawn = torch.rand(shape, generator=g) < 0.5
        drawn.view(-1)[0], drawn.view(-1)[-1] = True, False
        return drawn

    return Value(make)


def fixed(numbers: list[Any], dtype: torch.dtype) -> Value:
    return Value(lambda g: torch.tensor(numbers, dtype=dtype))


def definite(n: int) -> Value:
    """Symmetric, positive definite, well conditioned."""

    def make(g: torch.Generator) -> torch.Tensor:
        a = torch.randn(n, n, dtype=torch.float64, generator=g)
        return a @ a.T / n + 2 * torch.eye(n, dtype=torch.float64)

    return Value(make)


def lower(n: int) -> Value:
    made = definite(n).make
    return Value(lambda g: torch.linalg.cholesky(made(g)))


_TEMPLATES = torch.Generator().manual_seed(0)


@dataclass(frozen=True)
class Case:
    """One call of the operator ``op``."""

    op: str
    fn: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    note: str = ""
    differentiable: bool = True
    sharded: bool = False
    """It is tried with sharded operands, too; false where a table of ``test_dims_*`` does that."""
    planted: OpRule | None = None
    """A rule to try in place of the rules'."""

    def __str__(self) -> str:
        name = getattr(self.fn, "__name__", "fn").strip("<>")
        extra = [f"{key}={value}" for key, value in self.kwargs.items() if not isinstance(value, Value)]
        return "-".join([self.op, *([] if name in (self.op, "lambda") else [name]), *extra, *filter(None, [self.note])])

    @property
    def rule(self) -> OpRule:
        rule = self.planted or lookup(self.op)
        assert rule is not None, f"no rule for {self.op!r}"
        return rule

    def values(self, seed: int) -> tuple[torch.Tensor, ...]:
        """The operands' values, in order of appearance."""
        generator = torch.Generator().manual_seed(seed)
        return tuple(leaf.make(generator) for param, leaf in self._leaves() if self._is_operand(param, leaf))

    def call(self, *tensors: torch.Tensor) -> Any:
        """The operator on these values. A template is made anew for each call: its values must not matter."""
        operands = iter(tensors if self.differentiable else [tensor.detach() for tensor in tensors])
        feed = iter(
            [
                next(operands) if self._is_operand(param, leaf) else leaf.make(_TEMPLATES)
                for param, leaf in self._leaves()
                if isinstance(leaf, Value)
            ]
        )

        def fill(value: Any) -> Any:
            if isinstance(value, Value):
                return next(feed)
            return type(value)(fill(item) for item in value) if type(value) in (list, tuple) else value

        args = [fill(value) for value in self.args]
        return self.fn(*args, **{name: fill(value) for name, value in self.kwargs.items()})

    def operands(
        self, values: tuple[torch.Tensor, ...], placements: tuple[PerMeshAxisLocalSpmdType, ...]
    ) -> list[Given]:
        """What the local rule sees: one placement per tensor, numbers as constants."""
        pairs = iter(zip(values, placements, strict=True))
        linear = {factor.lstrip("*^") for term in self.rule.terms for factor in term.factors}
        seen: list[Given] = []
        for param, leaf in self._leaves():
            if self._is_operand(param, leaf):
                value, place = next(pairs)
                seen.append(Given(param, place, grad=value.is_floating_point() or value.is_complex()))
            elif (
                not isinstance(leaf, Value)
                and isinstance(leaf, (int, float, complex))
                and not isinstance(leaf, bool)
                and param in linear
            ):
                seen.append(Given(param, Weak.ZERO if leaf == 0 else Weak.CONSTANT))
        return seen

    def blocked(self, placements: tuple[PerMeshAxisLocalSpmdType, ...]) -> str | None:
        """What the rule's guard says to this call with these placements of its operands."""
        if self.rule.guard is None:
            return None
        named = {
            name: value.make(_TEMPLATES) if isinstance(value, Value) else value for name, value in self._arguments()
        }
        static: dict[str, Any] = {name: named[name] for name in self.rule.static if name in named}
        operands = {param: leaf for param, leaf in self._leaves() if self._is_operand(param, leaf)}
        static["dtypes"] = {param: str(leaf.make(_TEMPLATES).dtype) for param, leaf in operands.items()}
        params = [param for param, leaf in self._leaves() if self._is_operand(param, leaf)]
        static["partial"] = {param for param, place in zip(params, placements, strict=True) if place is P}
        return self.rule.guard(static)

    def _is_operand(self, param: str, leaf: Any) -> bool:
        return isinstance(leaf, Value) and param not in self.rule.templates

    def _arguments(self) -> Iterator[tuple[str, Any]]:
        parameters = self.rule.parameters
        for position, value in enumerate(self.args):
            spelled = parameters[min(position, len(parameters) - 1)] if parameters else f"args[{position}]"
            variadic = position >= len(parameters) and not spelled.startswith("*")
            yield (f"args[{position}]" if variadic else spelled.lstrip("*~")), value
        yield from self.kwargs.items()

    def _leaves(self) -> Iterator[tuple[str, Any]]:
        def flat(value: Any) -> Iterator[Any]:
            if isinstance(value, (list, tuple)):
                for item in value:
                    yield from flat(item)
            else:
                yield value

        for param, value in self._arguments():
            for leaf in flat(value):
                yield param, leaf


def case(
    op: str,
    fn: Callable[..., Any],
    *args: Any,
    note: str = "",
    differentiable: bool = True,
    sharded: bool = False,
    **kwargs: Any,
) -> Case:
    return Case(op, fn, args, kwargs, note, differentiable, sharded)


def by_name(name: str) -> Callable[..., Any]:
    """A function of ``torch.masked`` as programs call it: while a check runs, another stands under its name."""

    @functools.wraps(getattr(torch.masked, name))
    def call(*args: Any, **kwargs: Any) -> Any:
        return getattr(torch.masked, name)(*args, **kwargs)

    return call
