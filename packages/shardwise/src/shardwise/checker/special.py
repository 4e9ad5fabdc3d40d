"""How are the operators checked that are no plain functions of their operands? One handler per kind of row.

Factories make constants, random operators need to know whose generator is used, reading a value hands it to Python,
metadata is nobody's business, gradients have no type yet.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch

from shardwise.diagnostics.finding import Finding
from shardwise.diagnostics.source import is_library_calling
from shardwise.interop.tagging import Tag, set_tag, tag_of, type_of
from shardwise.mesh.entry import current_entry
from shardwise.mesh.normalize import axis_argument
from shardwise.rules.algebra import Refusal
from shardwise.rules.row import Kind
from shardwise.types.errors import SpmdTypeError
from shardwise.types.placement import UNKNOWN, I, P, R, V
from shardwise.types.tensor_type import EMPTY_TYPE, UNKNOWN_TYPE, UNTYPED, Ground, TensorType, constant_type

from .binding import Bound
from .calls import Op, has_scalar, unwrap
from .classes import is_dtensor_call
from .infer import AxisRefusal, Outcome
from .ordinary import Handler, judge, run
from .report import Located, axis_text, refuse
from .session import CheckSession

Args = Sequence[Any]
Kwargs = Mapping[str, Any]

_BRANCHING = {"__bool__", "is_nonzero", "__index__", "equal", "allclose"}
_COMPARISONS = {"equal", "allclose"}
"""Comparing local tensors is how a type error is hunted down, so it is allowed on a pending sum."""


def pass_through(session: CheckSession, func: Any, args: Args, kwargs: Kwargs) -> Any:
    """Metadata: nothing to check, nothing to type."""
    return func(*args, **kwargs)


def copied(session: CheckSession, func: Any, args: Args, kwargs: Kwargs) -> Any:
    """``copy.deepcopy`` of a tensor: a parameter's copy is made through ``.data`` and would lose the tag."""
    result = func(*args, **kwargs)
    if tag_of(result) is None and (tag := tag_of(args[0])) is not None:
        set_tag(result, Tag(tag.current(), tag.origin))
    return result


def gradient(session: CheckSession, func: Any, args: Args, kwargs: Kwargs) -> Any:
    """``x.grad``: compatible with anything until gradients are typed."""
    result = func(*args, **kwargs)
    if isinstance(result, torch.Tensor) and tag_of(result) is None:
        set_tag(result, Tag(UNKNOWN_TYPE))
    return result


def optimizer(session: CheckSession, func: Any, args: Args, kwargs: Kwargs) -> Any:
    """Fused updates of many tensors at once: destinations keep their declared types, results are not judged."""
    result = func(*args, **kwargs)
    for item in result if isinstance(result, (list, tuple)) else ():
        if isinstance(item, torch.Tensor) and tag_of(item) is None:
            set_tag(item, Tag(UNKNOWN_TYPE))
    return result


def factory(op: Op) -> Handler:
    """The handler for a factory: a constant under the current mesh, or what the operands (``full``) make of it."""
    zero, empty = op.row.kind is Kind.ZERO, op.row.kind is Kind.EMPTY
    uniform = op.name.removeprefix("new_").removesuffix("_like") in ("ones", "full", "scalar_tensor")

    def handle(session: CheckSession, func: Any, args: Args, kwargs: Kwargs) -> Any:
        if is_dtensor_call(args, kwargs):
            return func(*args, **kwargs)
        if op.in_place or kwargs.get("out") is not None:
            return _into_destination(session, op, func, args, kwargs, _constant(zero, empty, uniform))
        operands, values, outcome, blocked = judge(session, op, args, kwargs)
        template = type_of(args[0]) if op.name.endswith("_like") and args else UNTYPED
        if template.spec is not None and not session.local:
            outcome = _cut_like(template, outcome)
        if any(not isinstance(operand.type, TensorType) or operand.type is UNTYPED for operand in operands):
            operands = [operand for operand in operands if isinstance(operand.type, TensorType)]
        if operands and any(isinstance(value, torch.Tensor) or outcome.checked for value in values):
            if outcome.refusals:
                refuse(session, op.name, op.row, *_bound(op, args, kwargs), outcome, blocked=blocked)
            return run(session, op, func, args, kwargs, values, outcome)
        made = func(*[unwrap(a) for a in args], **{k: unwrap(v) for k, v in kwargs.items()})
        if isinstance(made, torch.Tensor):
            filled = not zero and not _is_zero_fill(op, args, kwargs)
            type = _like(template, filled, empty) if template.axes else _constant(zero or not filled, empty, uniform)
            if made.requires_grad:
                type = type.with_ground(Ground.ABSENT)
            if type is not UNTYPED:
                set_tag(made, Tag(type))
        return made

    return handle


def _bound(op: Op, args: Args, kwargs: Kwargs) -> tuple[Any, Any]:
    return op.bind(args, kwargs)


def _is_zero_fill(op: Op, args: Args, kwargs: Kwargs) -> bool:
    """``full(..., 0)``."""
    if "full" not in op.name:
        return False
    value = kwargs.get("fill_value", args[-1] if args else None)
    return isinstance(value, (int, float, complex)) and value == 0


def _constant(zero: bool, empty: bool, uniform: bool) -> TensorType:
    mesh = current_entry()
    if empty:
        return EMPTY_TYPE
    if mesh is None or (uniform and not zero):
        return constant_type(() if mesh is None else mesh.axes, zero=zero, uniform=uniform)
    return mesh.zero if zero else mesh.constant


def _cut_like(template: TensorType, outcome: Outcome) -> Outcome:
    """A typed number in the shape of a shard: the result is cut like the template, where the number is equal."""
    cut = template.spec.axes_with_partition_spec() if template.spec is not None else set()
    pending = [axis for axis in outcome.type.axes if axis in cut and outcome.type.get(axis) is P]
    if not outcome.type.axes:
        return outcome
    if pending:
        refusals = [AxisRefusal(axis, Refusal("SW112", "nonlinear", (0,))) for axis in pending]
        return replace(outcome, type=UNKNOWN_TYPE, refusals=(*outcome.refusals, *refusals))
    places = {axis: V for axis in outcome.type.axes if axis in cut}
    return replace(outcome, type=outcome.type.with_placements(places).with_spec(template.spec))


def _like(template: TensorType, filled: bool, empty: bool) -> TensorType:
    """The template's placements, but from constants alone; ones in place of partial values are no partial sum."""
    ground = Ground.EMPTY if empty else Ground.UNIFORM if filled else Ground.ZERO
    changes = {axis: R for axis in template.axes if filled and template.get(axis) is P}
    return TensorType.of({**{a: template.get(a) for a in template.axes}, **changes}, template.spec, ground)


def _into_destination(session: CheckSession, op: Op, func: Any, args: Args, kwargs: Kwargs, type: TensorType) -> Any:
    outcome = Outcome(UNTYPED if type is EMPTY_TYPE else type, checked=False)
    return run(session, op, func, args, kwargs, [], outcome)


def value_read(op: Op) -> Handler:
    """The handler for what hands a tensor's value to Python."""
    branching = op.name in _BRANCHING

    def handle(session: CheckSession, func: Any, args: Args, kwargs: Kwargs) -> Any:
        tensors = [value for value in (*args, *kwargs.values()) if isinstance(value, torch.Tensor)]
        for tensor in tensors:
            type = type_of(tensor)
            for axis, place in zip(type.axes, type.placements, strict=True):
                if place is P and type.ground is not Ground.ZERO and op.name not in _COMPARISONS:
                    _value_finding(session, op, "SW115", tensor, axis)
                elif place is V and branching and not type.ground.is_constant and not is_library_calling():
                    _value_finding(session, op, "SW116", tensor, axis)
        if any(type_of(tensor).axes for tensor in tensors):
            session.checked += 1
        else:
            session.unchecked += 1
        return func(*args, **kwargs)

    return handle


def _value_finding(session: CheckSession, op: Op, code: str, tensor: torch.Tensor, axis: Any) -> None:
    located = Located(op.name, [("input", tensor)])
    name, along = located.name(0), axis_text(axis)
    if code == "SW115":
        shown = op.name.strip("_")
        message = f"{shown} reads {name}, which is still a partial sum over {along}"
        facts: tuple[str, ...] = ("each rank would read its own addend, a number that means nothing alone",)
        help_lines: tuple[str, ...] = (f"all_reduce({name}, {axis_argument(axis)}, src=P, dst=R) before {shown}",)
    else:
        message = f"the program branches on {name}, which differs between the ranks of {along}"
        facts = ("ranks that take different branches issue different collectives, and then all of them wait",)
        help_lines = ()
    finding = Finding(code, message, located.place, op.name, along, (located.operand(0, axis),), facts, help_lines)
    session.report(SpmdTypeError(message, code=code, help=help_lines, finding=finding))


def random_op(op: Op) -> Handler:
    """The handler for what draws random numbers."""

    def handle(session: CheckSession, func: Any, args: Args, kwargs: Kwargs) -> Any:
        if is_dtensor_call(args, kwargs):
            return func(*args, **kwargs)
        operands, values, outcome, blocked = judge(session, op, args, kwargs)
        draws = op.row.draws is None or op.row.draws(op.static(args, kwargs, operands, values))
        template = type_of(args[0]) if op.templates and args else UNTYPED
        if draws and template.axes:
            operands = [Bound("input", template, label="input")]
            values = [args[0]]
            outcome = _like_numbers(session, template)
        elif draws and not operands and not op.in_place:
            return _numbers(session, func, args, kwargs)
        elif draws:
            outcome = _drawn(session, outcome, operands)
        if outcome.refusals:
            refuse(session, op.name, op.row, operands, values, outcome, blocked=blocked)
        return run(session, op, func, args, kwargs, values, outcome)

    return handle


def _numbers(session: CheckSession, func: Any, args: Args, kwargs: Kwargs) -> Any:
    """Random numbers out of nothing: unannotated, unless the generator is synchronised over the whole mesh."""
    if has_scalar(args, kwargs):
        args, kwargs = [unwrap(value) for value in args], {name: unwrap(value) for name, value in kwargs.items()}
    made = func(*args, **kwargs)
    mesh = current_entry()
    if isinstance(made, torch.Tensor) and mesh is not None and mesh.axes and mesh.axes <= session.synchronised:
        set_tag(made, Tag(TensorType.of(dict.fromkeys(mesh.axes, R))))
    session.unchecked += 1
    return made


def _like_numbers(session: CheckSession, template: TensorType) -> Outcome:
    """Numbers in the shape of a typed tensor: they vary where it varies, and must be equal where it is equal."""
    if P in template.placements:
        return Outcome(UNTYPED, checked=False)  # what noise for a pending sum is to be, nobody has said
    type = template.with_ground(Ground.ABSENT)
    source = Bound("input", type, label="input")
    return _drawn(session, Outcome(type, sources=(0,) * len(type.axes)), [source])


def _drawn(session: CheckSession, outcome: Outcome, operands: Sequence[Any]) -> Outcome:
    """The outcome with a refusal for every axis along which equal values would get different numbers."""
    type = outcome.type
    if type.ground.is_constant:
        # Constants in the shape of a typed tensor vary where it varies; others say nothing about their ranks.
        shaped = [operand.type for operand in operands if isinstance(operand.type, TensorType)]
        type = shaped[0] if len(shaped) == 1 else type
        equal = [axis for axis in type.axes if type.get(axis) is not V]
        alike = bool(type.axes) and all(axis in session.synchronised for axis in equal)
        return replace(outcome, type=type.with_ground(Ground.ABSENT) if alike else UNTYPED, sources=())
    if not outcome.checked or type.ground is Ground.UNKNOWN:
        return outcome
    refusals = list(outcome.refusals)
    changes = {}
    for axis, place in zip(type.axes, type.placements, strict=True):
        if place in (R, I, P) and axis not in session.synchronised:
            culprits = tuple(
                at for at, o in enumerate(operands) if isinstance(o.type, TensorType) and o.type.get(axis) is place
            )
            refusals.append(AxisRefusal(axis, Refusal("SW121", "unsynchronised", culprits)))
            changes[axis] = UNKNOWN
    return replace(outcome, type=type.with_placements(changes), refusals=tuple(refusals)) if changes else outcome
