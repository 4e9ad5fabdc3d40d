"""The handler of factories: under a mesh they make a constant, which any partner may read as it needs.

Zeros may also be read as a pending sum, one value everywhere may be cut anywhere, uninitialised memory takes the type
of what is written into it; a typed number (``full``) gives its own type.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

import torch

from shardwise.diagnostics.source import user_location
from shardwise.interop.tensors.tagging import Tag, set_tag, type_of
from shardwise.interop.torch_call import Arguments, Keywords, TorchFunction
from shardwise.mesh.entry import current_entry
from shardwise.op_rules.propagation.call_types import AxisRefusal, Outcome
from shardwise.op_rules.propagation.local import Refusal
from shardwise.op_rules.propagation.operand import may_be_count
from shardwise.op_rules.schema import Kind
from shardwise.types.placement import UNKNOWN, R, V
from shardwise.types.spec import PartitionSpec, make_entry
from shardwise.types.tensor_type import EMPTY_TYPE, UNKNOWN_TYPE, UNTYPED, Ground, TensorType, constant_type

from ..call.arguments import Op, has_scalar, unwrap
from ..call.cache_key import key_of
from ..diagnosis.reporter import refuse
from ..parts.own_parts import part_axes
from ..parts.own_rows import note_rows
from ..parts.varying_lengths import same_shape
from ..state.number_types import differing_axes
from ..state.numbers import TYPED_NUMBERS, joined
from ..state.session import CheckSession
from ..state.tensor_classes import is_dtensor_call
from .first_calls import run, run_first
from .foreign_numbers import has_foreign, run_of_foreign
from .given_sizes import EMPTY, FILLED, cut_like_sizes, memory_of_sizes, sizes_of_call
from .judging import judge
from .known_calls import LIMIT, KnownWrites
from .ordinary import Handler

_UNKNOWN: Any = object()
_OF_VALUES = (
    "tensor",
    "as_tensor",
    "asarray",
    "full",
    "full_like",
    "new_full",
    "new_tensor",
    "scalar_tensor",
    "arange",
)
"""What makes a tensor of the values that it is given."""
_OF_DATA = ("tensor", "as_tensor", "asarray", "new_tensor")
"""What makes a tensor of lists, which a program may have filled with each rank's own rows."""
OF_NUMBERS = "the type of a tensor that is made of numbers that vary"
"""What is listed as lost where global types cannot say how a tensor of each rank's numbers is cut."""
_ONE_VALUE = ("ones", "full", "scalar_tensor")


def factory(op: Op) -> Handler:
    """The handler for a factory: a constant under the current mesh, or what its operands make of it."""
    ground = {Kind.ZERO: Ground.ZERO, Kind.EMPTY: Ground.EMPTY}.get(op.rule.kind, Ground.CONSTANT)
    if ground is Ground.CONSTANT and op.name.removeprefix("new_").removesuffix("_like") in _ONE_VALUE:
        ground = Ground.UNIFORM
    return _Factory(op, ground).handle


class _Factory:
    """The calls of one factory, which makes constants of ``ground`` where nothing else is told."""

    def __init__(self, op: Op, ground: Ground) -> None:
        self.op, self.ground = op, ground
        self._constants: dict[tuple[object, ...], Tag | None] = {}
        """What a call that makes a constant tags it with."""
        self._writes = KnownWrites(op)

    def handle(self, session: CheckSession, func: Any, args: Arguments, kwargs: Keywords) -> object:
        """Run a call; the first of its kind is judged."""
        if self.op.in_place or kwargs.get("out") is not None:
            key = self._writes.key(session, args, kwargs)
            known, result = self._writes.run(session, func, args, kwargs, key)
            return result if known else self._first_write(session, func, args, kwargs, key)
        items = key_of(session, args, kwargs, [])
        if items is None:
            return self._first(session, func, args, kwargs, None)
        key = (*items, kwargs.get("dtype")) if kwargs else tuple(items)  # truth values are no addends
        tag = self._constants.get(key, _UNKNOWN)
        if tag is _UNKNOWN:
            return self._first(session, func, args, kwargs, key)
        made = func(*args, **kwargs)
        if tag is not None:
            made._shardwise = tag
        return made

    def _first_write(
        self,
        session: CheckSession,
        func: TorchFunction,
        args: Arguments,
        kwargs: Keywords,
        key: tuple[object, ...] | None,
    ) -> object:
        if is_dtensor_call(args, kwargs):
            return func(*args, **kwargs)
        op = self.op
        operands, values, outcome, blocked = judge(session, op, args, kwargs)
        if outcome.refusals:
            refuse(session, op.name, op.rule, operands, values, outcome, blocked=blocked)
        elif not outcome.type.axes:  # made of numbers alone
            made_of = UNTYPED if self.ground is Ground.EMPTY else _constant(self.ground)
            values, outcome = [], Outcome(made_of, checked=False)
        return run_first(session, self._writes, func, args, kwargs, values, outcome, key)

    def _first(
        self,
        session: CheckSession,
        func: TorchFunction,
        args: Arguments,
        kwargs: Keywords,
        key: tuple[object, ...] | None,
    ) -> object:
        op = self.op
        if is_dtensor_call(args, kwargs):
            return func(*args, **kwargs)
        if session.numbers_left and key is None and has_foreign((*args, *kwargs.values())):
            return run_of_foreign(session, func, args, kwargs, writes=False)
        template = type_of(args[0]) if op.name.endswith("_like") and args else UNTYPED
        operands, values, outcome, blocked = judge(session, op, args, kwargs)
        told = joined(_numbers_in(_values_of(op, args, kwargs))) if op.rule.op in _OF_VALUES else UNTYPED
        of_types = [operand for operand in operands if isinstance(operand.type, TensorType)]
        own = differing_axes(told) and not template.axes and all(operand.number is not None for operand in of_types)
        if of_types and not own:
            if template.spec is not None and not session.local:
                outcome = _cut_like(template, outcome)
            if op.name in FILLED and not session.local:
                outcome = replace(outcome, type=cut_like_sizes(outcome.type, sizes_of_call(op.name, args, kwargs)))
            if outcome.refusals:
                refuse(session, op.name, op.rule, operands, values, outcome, blocked=blocked)
            return run(session, op, func, args, kwargs, values, outcome)
        made = func(*[unwrap(value) for value in args], **{name: unwrap(value) for name, value in kwargs.items()})
        if not isinstance(made, torch.Tensor):
            return made
        if not session.strict and not differing_axes(told) and op.rule.op in _OF_DATA and _is_data(args, kwargs):
            return made  # nobody knows whether other ranks have the same rows
        type = _type_made(session, op, args, kwargs, self.ground, _addable(template, made), told)
        if made.requires_grad and template.axes and template.ground is Ground.ABSENT:
            type = type.with_ground(Ground.ABSENT)  # a leaf like it; other leaves are what is said of them
        tag = None if type is UNTYPED else Tag(type)
        if tag is not None:
            set_tag(made, tag)
        if op.name == "arange" and told is not UNTYPED and not session.local:
            note_rows(made, args)
            key = None  # this very tensor is remembered
        if template.axes:
            same_shape(made, args[0])
        if key is not None and made.__class__ is torch.Tensor and not has_scalar(args, kwargs):
            self._remember(key, tag)
        return made

    def _remember(self, key: tuple[object, ...], tag: Tag | None) -> None:
        if len(self._constants) >= LIMIT:
            self._constants.clear()
        self._constants[key] = tag


def _type_made(
    session: CheckSession,
    op: Op,
    args: Arguments,
    kwargs: Keywords,
    ground: Ground,
    template: TensorType,
    told: TensorType,
) -> TensorType:
    """What a factory makes where no operand but its template has a type.

    ``told``  the type of the numbers that it is given together; ``UNTYPED`` if none has one.

        zeros_like(x), x a shard     a constant zero, cut as x is
        arange(start, end)           of positions of the rank's own part: cut over the axis that the part is of
        full((n,), 1 / world)        of unknown scale
    """
    ground = Ground.ZERO if ground in (Ground.UNIFORM, Ground.CONSTANT) and _is_zero_fill(op, args, kwargs) else ground
    type = _like(template, ground) if template.axes else _constant(ground)
    if told is not UNTYPED and op.rule.op == "arange" and not differing_axes(told):
        type = type.of_unknown_scale()  # positions up to a size are no sizes
    elif told is not UNTYPED:
        type = _of_numbers(type, told)
        axes = part_axes(*args[:3]) if op.rule.op == "arange" and len(args) >= 2 else ()
        if axes and not session.local:
            type = type.with_spec(PartitionSpec(make_entry(axes)))
        elif not session.local and not session.strict:
            local = session.scope(current_entry()).local_axes
            own = type.varying_axes if op.rule.op != "arange" else differing_axes(type)
            unknown = {axis: UNKNOWN for axis in own if axis not in local}
            type = type.with_placements(unknown)
            if unknown:
                session.lose(OF_NUMBERS, user_location())
    elif op.rule.op in _OF_VALUES and any(map(may_be_count, _numbers_in(_values_of(op, args, kwargs)))):
        type = type.of_unknown_scale()
    if op.name in FILLED and not session.local:
        type = cut_like_sizes(type, sizes_of_call(op.name, args, kwargs))
    elif op.name in EMPTY and not session.local and (mesh := current_entry()) is not None:
        type = memory_of_sizes(mesh.axes, sizes_of_call(op.name, args, kwargs))
    return type


def _values_of(op: Op, args: Arguments, kwargs: Keywords) -> Iterator[object]:
    """The arguments that may be values of the result: of ``full`` all but the sizes."""
    filled = op.name in ("full", "new_full")
    yield from args[len(op.templates) + 1 :] if filled else args
    yield from (value for name, value in kwargs.items() if not filled or name != "size")


def _numbers_in(values: Iterable[object]) -> Iterator[object]:
    for value in values:
        if isinstance(value, (list, tuple)) and not isinstance(value, torch.Size):
            yield from _numbers_in(value)
        elif isinstance(value, (int, float)):
            yield value


def _is_data(args: Arguments, kwargs: Keywords) -> bool:
    """Several numbers in lists, rather than one."""
    return any(isinstance(one, (list, tuple)) and len(one) > 0 for one in (*args[-1:], kwargs.get("data")))


def _of_numbers(constant: TensorType, numbers: TensorType) -> TensorType:
    """The type of a tensor made of typed numbers: what varies among them makes it vary, and it has their scale."""
    if differing_axes(numbers):
        return numbers
    return constant.with_scale({axis: numbers.exponent(axis) for axis in constant.axes if axis in numbers})


def _is_zero_fill(op: Op, args: Arguments, kwargs: Keywords) -> bool:
    """``full(..., 0)``, and ``tensor(0.0)``, with which a program begins to count."""
    made = args[-1] if args and ("full" in op.name or (op.rule.op in _OF_DATA and len(args) == 1)) else None
    value = kwargs.get("fill_value", made)
    varying = value.__class__ in TYPED_NUMBERS and bool(differing_axes(type_of(value)))
    return isinstance(value, (int, float, complex)) and value == 0 and not varying


def _constant(ground: Ground) -> TensorType:
    """A tensor of this ground under the current mesh."""
    mesh = current_entry()
    if ground is Ground.EMPTY:
        return EMPTY_TYPE
    if mesh is not None and ground is not Ground.UNIFORM:
        return mesh.zero if ground is Ground.ZERO else mesh.constant
    axes = () if mesh is None else mesh.axes
    return constant_type(axes, zero=ground is Ground.ZERO, uniform=ground is Ground.UNIFORM)


def _cut_like(template: TensorType, outcome: Outcome) -> Outcome:
    """A typed number in the shape of a shard: the result is cut like the template, where the number is equal."""
    cut = template.spec.axes_with_partition_spec() if template.spec is not None else set()
    pending = [axis for axis in outcome.type.axes if axis in cut and outcome.type.is_partial(axis)]
    if not outcome.type.axes:
        return outcome
    if pending:
        refusals = [AxisRefusal(axis, Refusal("SW112", "nonlinear", (0,))) for axis in pending]
        return replace(outcome, type=UNKNOWN_TYPE, refusals=(*outcome.refusals, *refusals))
    places = {axis: V for axis in outcome.type.axes if axis in cut}
    type = outcome.type.with_placements(places).with_spec(template.spec)
    return replace(outcome, type=type.with_uneven(template.uneven) if template.uneven else type)


def _addable(template: TensorType, made: torch.Tensor) -> TensorType:
    """The template's type without sums that are pending, where truth values are made of its shape: they have none."""
    if made.dtype is not torch.bool or not template.partial_axes:
        return template
    return template.with_placements(dict.fromkeys(template.partial_axes, R))


def _like(template: TensorType, ground: Ground) -> TensorType:
    """The template's placements, but from constants alone; ones in place of partial values are no partial sum."""
    places = {axis: template.get(axis) for axis in template.axes}
    if ground is Ground.UNIFORM:
        places |= {axis: R for axis, place in places.items() if place.is_partial}
    return TensorType.of(places, template.spec, ground, template.uneven)
