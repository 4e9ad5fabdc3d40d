"""Which tensors does a call take, and in which roles? Binds arguments to the parameters that a rule names."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping, Sequence
from numbers import Integral, Number
from typing import Any

import torch

from shardwise.interop.annotations.scalar import Scalar
from shardwise.interop.calls.op_names import OpName
from shardwise.interop.tensors.tagging import sizes_of, type_of
from shardwise.interop.torch_compat import takes_gradient
from shardwise.mesh.axis import MeshAxis
from shardwise.op_rules.propagation.dim_labels import Call, NumberPlace, Shape
from shardwise.op_rules.propagation.local import Weak
from shardwise.op_rules.propagation.operand import Bound
from shardwise.op_rules.propagation.scale import law_of
from shardwise.op_rules.schema import Kind, OpRule
from shardwise.types.tensor_type import EMPTY_TYPE, TensorType

from ..state.number_types import differing_axes
from ..state.numbers import TYPED_NUMBERS, plain, shared_along, type_here

NUMBERS = (int, float, complex, Number)
_SLICES = ("getitem", "setitem", "narrow", "select", "arange")
_ALIASES = {"self": "input", "x": "input", "tensor": "input"}
COEFFICIENTS = ("alpha", "value")
"""What stands in front of a term that is added."""


class Op:
    """One spelling of an operator, with its rule and how its parameters bind."""

    __slots__ = ("in_place", "linear_params", "name", "params", "rule", "slices", "templates", "variadic")

    def __init__(self, name: OpName, rule: OpRule) -> None:
        self.name = name.shown
        self.rule = rule
        self.in_place = name.in_place
        self.params = tuple(param.lstrip("*~") for param in rule.parameters)
        self.slices = rule.op in _SLICES
        """Numbers that differ between ranks cut another part out on each."""
        self.templates = rule.templates
        laws = (*rule.terms, *law_of(rule)[0])
        self.linear_params = frozenset(factor.lstrip("*^") for term in laws for factor in term.factors) | {
            power for power in law_of(rule)[1].values() if isinstance(power, str)
        }
        last = (rule.parameters or ("",))[-1]
        self.variadic = last[1:] if last.startswith("*") else None
        """The parameter that takes the rest of the positional arguments."""

    def param_at(self, position: int) -> str:
        """The name of the positional parameter number ``position``."""
        if position < len(self.params):
            return self.params[position]
        return self.variadic or f"args[{position}]"

    def arguments(self, args: Sequence[object], kwargs: Mapping[str, object]) -> Iterator[tuple[str, Any]]:
        """Parameter name and value of every argument; ``out=`` is left out."""
        for position, value in enumerate(args):
            yield self.param_at(position), value
        for name, value in kwargs.items():
            if name != "out":
                yield (name if name in self.params else _ALIASES.get(name, name)), value

    def bind(self, args: Sequence[object], kwargs: Mapping[str, object]) -> tuple[list[Bound], list[Any]]:
        """The operands in order of appearance, and their values."""
        operands: list[Bound] = []
        values: list[Any] = []
        seen: dict[str, int] = {}
        for position, (param, value) in enumerate(self.arguments(args, kwargs)):
            # A template gives its shape only; memory that nobody has written yet is no operand of its first write.
            if param in self.templates or (position == 0 and self.in_place and type_of(value) is EMPTY_TYPE):
                continue
            # Torch ignores what is multiplied by beta=0, whatever it holds.
            if "beta" in self.linear_params and param == self.param_at(0) and _is_zero(kwargs.get("beta")):
                continue
            for nested, leaf in _leaves(value):
                # A plain number inside a list is an index, a label or a size, never an operand (einsum's sublists).
                kept = not isinstance(leaf, NUMBERS) or leaf.__class__ in TYPED_NUMBERS
                type = None if nested and not kept else self._operand_type(param, leaf)
                if type is None:
                    continue
                if isinstance(type, TensorType) and self._is_step(param, leaf, args):
                    type = type.of_unknown_scale()
                many = nested or seen.get(param, 0) > 0 or param == self.variadic
                index = seen.get(param, 0) if many else None
                seen[param] = seen.get(param, 0) + 1
                grad = isinstance(leaf, torch.Tensor) and takes_gradient(leaf) and torch.is_grad_enabled()
                label = param if index is None else f"{param}[{index}]"
                shape, dtype = (sizes_of(leaf), str(leaf.dtype)) if isinstance(leaf, torch.Tensor) else (None, "")
                number = leaf if isinstance(type, Weak) or leaf.__class__ in TYPED_NUMBERS else None
                operands.append(Bound(param, type, index, grad, label, shape, dtype, number))
                values.append(leaf)
        return operands, values

    def _is_step(self, param: str, coefficient: object, args: Sequence[object]) -> bool:
        """True of the size of a step, which may well grow with the ranks: it leads down, or moves a parameter."""
        if coefficient.__class__ not in TYPED_NUMBERS or param not in COEFFICIENTS:
            return False
        first, size = args[0] if args else None, plain(coefficient)
        down = size > 0 if self.rule.op == "sub" else size < 0
        return down or (isinstance(first, torch.Tensor) and first.is_leaf and first.requires_grad)

    def _operand_type(self, param: str, value: object) -> TensorType | Weak | None:
        if isinstance(value, (torch.Tensor, Scalar)):
            return type_of(value)
        if value.__class__ in TYPED_NUMBERS and (type := type_here(value)).axes:
            if param in self.linear_params:
                return type
            if differing_axes(type):
                return type if self.slices or self.rule.kind is Kind.PURE else None
        if value is None or param not in self.linear_params:
            return None
        return Weak.ZERO if _is_zero(value) else Weak.CONSTANT

    def labelled(self, args: Sequence[object], kwargs: Mapping[str, object], operands: Sequence[Bound]) -> Call:
        """The call as a labelling sees it: every tensor is its shape."""
        tensors = tuple(Shape(o.shape, o.param, o.dtype) for o in operands if o.shape is not None)
        arguments = dict(self.arguments(args, kwargs))
        return Call(tensors, {name: _shapes(value, name) for name, value in arguments.items()}, _shares(arguments))

    def static(
        self, args: Sequence[object], kwargs: Mapping[str, object], operands: Sequence[Bound], values: Sequence[object]
    ) -> dict[str, object]:
        """What the rule's guard sees: its static parameters, the operands' dtypes, and which are partial somewhere."""
        given = {name: _unsized(value) for name, value in self.arguments(args, kwargs)}
        static = {name: given[name] for name in self.rule.static if name in given}
        static["partial"] = {o.param for o in operands if isinstance(o.type, TensorType) and o.type.partial_axes}
        static["dtypes"] = {
            operand.param: str(value.dtype).removeprefix("torch.")
            for operand, value in zip(operands, values, strict=True)
            if isinstance(value, torch.Tensor)
        }
        return static


def _shares(arguments: Mapping[str, object]) -> dict[MeshAxis, frozenset[NumberPlace]]:
    """For each axis, the numbers that are one n-th of those on one device."""
    found: dict[MeshAxis, set[NumberPlace]] = {}
    for name, value in arguments.items():
        for at, number in enumerate(value if isinstance(value, (list, tuple)) else (value,)):
            if number.__class__ in TYPED_NUMBERS:
                for axis in shared_along(number):
                    found.setdefault(axis, set()).add((name, at))
    return {axis: frozenset(places) for axis, places in found.items()}


def _unsized(value: object) -> object:
    """An argument of which a guard looks at the value."""
    return plain(value) if value.__class__ in TYPED_NUMBERS else value


def _shapes(value: object, param: str) -> object:
    """An argument with its tensors replaced by their shapes."""
    if isinstance(value, torch.Tensor):
        return Shape(sizes_of(value), param, str(value.dtype))
    if isinstance(value, (list, tuple)) and not isinstance(value, torch.Size):
        shapes = (_shapes(item, param) for item in value)
        return tuple(shapes) if isinstance(value, tuple) else list(shapes)
    if isinstance(value, torch.Size):
        return torch.Size(map(plain, value))
    if isinstance(value, Scalar):
        return value.value
    # Torch takes the whole numbers of any library, and a labelling looks for Python's.
    return operator.index(value) if isinstance(value, Integral) and not isinstance(value, bool) else plain(value)


def _is_zero(value: object) -> bool:
    return isinstance(value, NUMBERS) and value == 0


def _leaves(value: object) -> Iterator[tuple[bool, object]]:
    """Tensors and numbers in an argument; True for those inside a container."""
    if isinstance(value, (list, tuple)):
        if not isinstance(value, torch.Size):
            for item in value:
                for _, leaf in _leaves(item):
                    yield True, leaf
    elif isinstance(value, dict):
        for item in value.values():
            for _, leaf in _leaves(item):
                yield True, leaf
    elif isinstance(value, slice):
        for item in (value.start, value.stop, value.step):
            if isinstance(item, (torch.Tensor, Scalar)) or item.__class__ in TYPED_NUMBERS:
                yield True, item
    else:
        yield False, value


def has_scalar(args: Sequence[object], kwargs: Mapping[str, object]) -> bool:
    """True if a typed scalar stands among the arguments, also in a list, a tuple or a slice."""
    return any(_holds_scalar(value) for value in args) or any(_holds_scalar(value) for value in kwargs.values())


def _holds_scalar(value: Any) -> bool:
    cls = value.__class__
    if cls is list or cls is tuple:
        return any(_holds_scalar(item) for item in value)
    if cls is slice:
        return _holds_scalar(value.start) or _holds_scalar(value.stop) or _holds_scalar(value.step)
    return cls is Scalar


def unwrap(value: Any) -> object:
    """The argument with every typed scalar replaced by its number."""
    if isinstance(value, Scalar):
        return value.value
    if type(value) in (list, tuple):
        return type(value)(unwrap(item) for item in value)
    if type(value) is slice:
        return slice(unwrap(value.start), unwrap(value.stop), unwrap(value.step))
    return value
